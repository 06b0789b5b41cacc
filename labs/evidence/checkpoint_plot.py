"""A checkpoint as a picture: its batches in a row, what each one read, and the watermark that it ran with."""

from __future__ import annotations

from datetime import UTC, datetime

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from labs.evidence.anomaly import Fate
from labs.evidence.checkpoint import Batch, Checkpoint
from labs.evidence.plot_style import COLOURS, NOTHING_KNOWN, dress, new_axes, say_instead

FILL = {
    "committed": COLOURS[Fate.DELIVERED],
    "in flight": COLOURS[Fate.DUPLICATED],  # what a restart may publish twice
    "damaged": NOTHING_KNOWN,
}
# Not by colour alone: solid, dashed, dotted.
EDGE = {"committed": "solid", "in flight": "dashed", "damaged": "dotted"}
LINE = 0.34  # height of a line of text, where a box is 1 high


def plot_checkpoint(checkpoint: Checkpoint, ax: Axes | None = None, *, last: int = 8, title: str = "") -> Axes:
    """Draw the `last` batches in a row: status, offsets read per partition, watermark (UTC)."""
    ax = ax or new_axes(width=9, height=2.9)
    shown = checkpoint.batches[-last:]
    topics = {topic for batch in shown for topic, _ in batch.end}
    deepest = 1
    for x, batch in enumerate(shown):
        _draw_box(ax, x, batch)
        ax.text(x, 0.5 + LINE, _clock(batch.watermark_ms), ha="center", va="center", fontsize=9)
        lines = _offset_lines(batch, len(topics) > 1)
        deepest = max(deepest, len(lines))
        ax.text(x, -0.5 - LINE / 2, "\n".join(lines), ha="center", va="top", fontsize=9, linespacing=1.4)
    dress(ax, title or checkpoint.summary, "", "", grid="")
    ax.spines[:].set_visible(False)
    if not shown:
        say_instead(ax, "no batch is planned yet")
        return ax
    source = f"topic {topics.pop()}" if len(topics) == 1 else "the source"
    rows = {0.5 + LINE: "watermark (UTC)", 0: "batch", -0.5 - LINE * (deepest + 1) / 2: f"offsets of\n{source}"}
    ax.set_yticks(list(rows), list(rows.values()))
    ax.set_xticks([])
    ax.tick_params(length=0)
    ax.set(xlim=(-0.6, len(shown) - 0.4), ylim=(-0.7 - LINE * deepest, 0.7 + LINE))
    hidden = len(checkpoint.batches) - len(shown)
    if hidden:
        ax.set_xlabel(f"the last {len(shown)} of {len(checkpoint.batches)} batches in the checkpoint", fontsize=9)
    return ax


def _draw_box(ax: Axes, x: int, batch: Batch) -> None:
    colour, style = FILL[batch.status], EDGE[batch.status]
    box = FancyBboxPatch(
        (x - 0.42, -0.42), 0.84, 0.84, "round,pad=0.03", facecolor=colour, edgecolor="black", linestyle=style
    )
    ax.add_patch(box)
    ax.text(x, 0.2, str(batch.batch_id), ha="center", va="center", fontsize=12, weight="bold")
    ax.text(x, -0.18, batch.status, ha="center", va="center", fontsize=8.5)


def _offset_lines(batch: Batch, with_topic: bool) -> list[str]:
    """Write one line per partition of which the batch read something."""
    lines = [
        f"{topic + '-' if with_topic else ''}{partition}: {batch.start.get((topic, partition), '?')}–{end}"
        for (topic, partition), end in sorted(batch.end.items())
        if batch.start.get((topic, partition)) != end
    ]
    return lines or ["nothing" if batch.planned else "unknown"]


def _clock(time_ms: int | None) -> str:
    """Write the time of day of epoch millis, a dash for none."""
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%H:%M:%S.%f}"[:-3] if time_ms else "–"
