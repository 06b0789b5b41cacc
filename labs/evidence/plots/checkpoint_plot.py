"""A checkpoint as a picture: its batches in a row, what each one read, and the watermark that it ran with."""

from __future__ import annotations

from datetime import UTC, datetime
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from labs.evidence.auditor.anomaly import Fate
from labs.evidence.checkpoint.checkpoint import Batch, Checkpoint
from labs.evidence.plots.style import COLOURS, NOTHING_KNOWN, dress, new_axes, say_instead

FILL = {
    "committed": COLOURS[Fate.DELIVERED],
    "in flight": COLOURS[Fate.DUPLICATED],  # what a restart may publish twice
    "damaged": NOTHING_KNOWN,
}
# Not by colour alone: solid, dashed, dotted.
EDGE = {"committed": "solid", "in flight": "dashed", "damaged": "dotted"}
# Heights in the plot, where a box reaches from -0.5 to 0.5.
ABOVE, BELOW, LINE = 0.65, -0.65, 0.28
TEXT: dict[str, Any] = {"fontsize": 9, "linespacing": 1.3}


def plot_checkpoint(checkpoint: Checkpoint, ax: Axes | None = None, *, last: int = 8, title: str = "") -> Axes:
    """Draw the `last` batches in a row: status, offsets read per partition, watermark (UTC)."""
    ax = ax or new_axes(width=9, height=2.9)
    dress(ax, title or checkpoint.summary, "", "", grid="")
    ax.spines[:].set_visible(False)
    ax.set(xticks=[], yticks=[])
    shown = checkpoint.batches[-last:]
    if not shown:
        say_instead(ax, "no batch is planned yet")
        return ax
    topics = sorted({topic for batch in shown for topic, _ in batch.end})
    reads = [_reads(batch, with_topic=len(topics) > 1) for batch in shown]
    for x, (batch, lines) in enumerate(zip(shown, reads, strict=True)):
        ax.text(x, ABOVE, _clock(batch.watermark_ms), ha="center", **TEXT)
        _draw_box(ax, x, batch)
        ax.text(x, BELOW, "\n".join(lines), ha="center", va="top", **TEXT)
    beside: dict[str, Any] = {"x": -0.01, "ha": "right", "transform": ax.get_yaxis_transform(), **TEXT}
    ax.text(y=ABOVE, s="watermark (UTC)", **beside)
    ax.text(y=0, s="batch", va="center", **beside)
    ax.text(y=BELOW, s=f"partition: offsets\nof topic {topics[0]}" if len(topics) == 1 else "reads", va="top", **beside)
    ax.set(xlim=(-0.5, len(shown) - 0.5), ylim=(BELOW - LINE * max(2, *map(len, reads)), ABOVE + LINE))
    if len(shown) < len(checkpoint.batches):
        ax.set_xlabel(f"the last {len(shown)} of the {len(checkpoint.batches)} batches in the checkpoint", fontsize=9)
    return ax


def _draw_box(ax: Axes, x: int, batch: Batch) -> None:
    style: dict[str, Any] = {"facecolor": FILL[batch.status], "linestyle": EDGE[batch.status], "edgecolor": "black"}
    ax.add_patch(FancyBboxPatch((x - 0.41, -0.45), 0.82, 0.9, "round,pad=0.04", **style))
    ax.text(x, 0.22, str(batch.batch_id), ha="center", va="center", fontsize=12, weight="bold")
    log = [batch.status] if batch.status == "damaged" else ["planned", batch.status]
    ax.text(x, -0.2, "\n".join(log), ha="center", va="center", **TEXT)


def _reads(batch: Batch, with_topic: bool) -> list[str]:
    """Write one line per partition of which the batch read something."""
    if not batch.planned:
        return ["unknown"]
    if not batch.end:
        return [fill(source, 16) for source in filter(None, batch.sources)]
    moved = [(at, end) for at, end in sorted(batch.end.items()) if batch.start.get(at) != end]
    lines = [
        f"{topic + '-' if with_topic else ''}{partition}: {batch.start.get((topic, partition), '?')}–{end}"
        for (topic, partition), end in moved
    ]
    return lines or ["nothing"]


def _clock(time_ms: int | None) -> str:
    """Write the time of day of epoch millis, a dash for none."""
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%H:%M:%S.%f}"[:-3] if time_ms else "–"
