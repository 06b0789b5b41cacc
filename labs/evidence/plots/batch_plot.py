"""The batches of a query below one another: the event time that each one read, its watermark, what was final by it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator

from labs.evidence.auditor.anomaly import Fate
from labs.evidence.plots.style import COLOURS, NOTHING_KNOWN, REQUESTS, dress, new_axes, say_instead
from labs.evidence.plots.time_axis import DAY_MS, label_time
from labs.pipeline.records import WINDOW_MS, window_start

# Heights in a row, which reaches from -0.5 to 0.5.
TALL, READ_AT, READ_TALL = 0.8, 0.22, 0.2


def plot_batches(batches: Iterable[Any], ax: Axes | None = None, *, title: str = "") -> Axes:
    """Draw Spark's progress reports (`query.recentProgress`) of a query with one stateful operator.

    A green window was written by the batch in whose row it is, a grey one before it; the line is the watermark.
    """
    rows = list(batches)
    times = [_times(each.eventTime) for each in rows]
    read = [span for span in times if "min" in span]
    ax = ax or new_axes(width=9, height=1.3 + 0.55 * max(3, len(rows)))
    if not read:
        dress(ax, title or "no batch read anything", "", "")
        say_instead(ax, "no batch read anything")
        return ax
    first, last = window_start(min(span["min"] for span in read)), window_start(max(span["max"] for span in read))
    windows = range(first, last + WINDOW_MS, WINDOW_MS)
    before = 0
    for row, (batch, span) in enumerate(zip(rows, times, strict=True)):
        watermark = span.get("watermark", 0)
        for start in windows:
            _draw_window(ax, row, start, start + WINDOW_MS, before, watermark)
        if "min" in span:
            left = span["min"] / DAY_MS
            ax.barh(row + READ_AT, span["max"] / DAY_MS - left, READ_TALL, left=left, color=REQUESTS)
        if watermark > first:
            ax.plot([watermark / DAY_MS] * 2, [row - 0.5, row + 0.5], color="black", linewidth=2)
        ax.text(1.01, row, _says(batch), transform=ax.get_yaxis_transform(), va="center", fontsize=9)
        before = watermark
    finding = "A window is written by the batch after the one that moved the watermark past its end"
    dress(ax, title or finding, label_time(ax, windows, WINDOW_MS), "batch", grid="")
    ax.yaxis.set_major_locator(FixedLocator(range(len(rows))))
    ax.set_yticklabels([str(batch.batchId) for batch in rows])
    ax.set_ylim(len(rows) - 0.4, -0.6)
    return ax


def _draw_window(ax: Axes, row: int, start: int, end: int, before: int, watermark: int) -> None:
    """Draw a window in a batch's row: written by it, written before it, or open (an outline)."""
    written, gone = before < end <= watermark, end <= before
    fill = COLOURS[Fate.DELIVERED] if written else NOTHING_KNOWN if gone else "none"
    margin = (end - start) * 0.04
    left, width = (start + margin) / DAY_MS, (end - start - 2 * margin) / DAY_MS
    ax.barh(row, width, TALL, left=left, color=fill, edgecolor="#888888", linestyle="-" if written or gone else ":")


def _says(batch: Any) -> str:
    """Say what a batch read and wrote, as Spark reports it."""
    [state] = batch.stateOperators
    return f"reads {batch.numInputRows:,}, writes {state.numRowsRemoved:,}"


def _times(event_time: dict[str, str]) -> dict[str, int]:
    """Return min, max and watermark, where a batch has them, in epoch milliseconds."""
    return {name: round(datetime.fromisoformat(text).timestamp() * 1000) for name, text in event_time.items()}
