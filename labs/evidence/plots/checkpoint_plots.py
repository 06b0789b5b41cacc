"""Plots of checkpoints and watermarks.

They show the batches of a query with their offsets and watermarks, the requests that came too late, what happens if a
restored state does not fit its position, and what aligned and unaligned checkpoints cost.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, Patch
from matplotlib.ticker import FixedLocator, MaxNLocator, MultipleLocator

from labs.evidence.auditor.anomalies import Fate
from labs.evidence.checkpoint.checkpoint import Batch, Checkpoint
from labs.evidence.plots.style import COLOURS, DAY_MS, NOTHING_KNOWN, REQUESTS, dress, label_time, new_axes, say_instead
from labs.pipeline.records import WINDOW_MS, window_start

FILL = {
    "committed": COLOURS[Fate.DELIVERED],
    "in flight": COLOURS[Fate.DUPLICATED],  # what a restart may publish twice
    "damaged": NOTHING_KNOWN,
}
# The line style tells the statuses apart, too, and not the colour alone.
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
    """Write one line per partition that the batch read from."""
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


# Heights in a row, which reaches from -0.5 to 0.5.
TALL, READ_AT, READ_TALL = 0.8, 0.22, 0.2


def plot_batches(batches: Iterable[Any], ax: Axes | None = None, *, title: str = "") -> Axes:
    """Draw Spark's progress reports (`query.recentProgress`) of a query with one stateful operator.

    In a batch's row, that batch wrote the green windows and earlier ones wrote the grey; the line is the watermark.
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
    dress(ax, title or finding, label_time(ax, windows), "batch", grid="")
    ax.yaxis.set_major_locator(FixedLocator(range(len(rows))))
    ax.set_yticklabels([str(batch.batchId) for batch in rows])
    ax.set_ylim(len(rows) - 0.4, -0.6)
    _explain_batches(ax)
    return ax


def _explain_batches(ax: Axes) -> None:
    window: dict[str, Any] = {"edgecolor": "#888888"}
    handles = [
        Patch(facecolor=REQUESTS, label="requests it reads"),
        Patch(facecolor=COLOURS[Fate.DELIVERED], label="windows it writes", **window),
        Patch(facecolor=NOTHING_KNOWN, label="written before", **window),
        Patch(facecolor="none", label="not written yet", linestyle=":", **window),
        Line2D([], [], color="black", linewidth=2, label="watermark"),
    ]
    ax.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=5, frameon=False, fontsize=9)


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


def plot_arrivals(
    accesses: Sequence[tuple[int, str]],
    watermarks: Sequence[int | None],
    dropped: Container[tuple[int, str]],
    ax: Axes | None = None,
) -> Axes:
    """Plot each access (epoch milliseconds, IP) in the order of arrival, and the watermark at that time.

    `dropped` holds the (window, IP) of those that came too late. The lines of the grid are the borders of the windows.
    """
    ax = ax or new_axes(8, 3.6)
    first = window_start(min(time_ms for time_ms, _ in accesses))
    seconds = [(time_ms - first) / 1000 for time_ms, _ in accesses]
    late = [(window_start(time_ms), ip) in dropped for time_ms, ip in accesses]
    numbers = range(1, len(accesses) + 1)
    line = [float("nan") if each is None else (each - first) / 1000 for each in watermarks]
    ax.step(numbers, line, where="mid", color="black", linewidth=2, label="watermark")
    for fate, marker, chosen in (("counted", "o", False), ("dropped", "X", True)):
        shown = [n for n in numbers if late[n - 1] == chosen]
        colour = COLOURS[Fate.LOST if chosen else Fate.DELIVERED]
        if shown:
            ax.scatter(shown, [seconds[n - 1] for n in shown], s=90, marker=marker, color=colour, label=fate)
    for n, second, (_, ip) in zip(numbers, seconds, accesses, strict=True):
        ax.annotate(ip, (n, second), (8, 6), textcoords="offset points", fontsize=9)
    finding = f"{sum(late)} of {len(late)} requests came when the watermark had passed the end of its window"
    dress(ax, finding, "request, in the order of arrival", "its event time (seconds)")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.yaxis.set_major_locator(MultipleLocator(WINDOW_MS / 1000))
    ax.set(xlim=(0.5, len(accesses) + 0.9), ylim=(0, max(seconds) + 3))
    ax.legend(frameon=False, fontsize=9)
    return ax


def plot_fit(counts: Mapping[int, int], truth: int, ax: Axes | None = None) -> Axes:
    """Plot the count after a restore by how many records the state is ahead of the position (negative: behind).

    `truth` is the right count.
    """
    ax = ax or new_axes(8, 3.6)
    for ahead, count in counts.items():
        fate = Fate.DELIVERED if count == truth else Fate.DUPLICATED if count > truth else Fate.LOST
        ax.bar(ahead, count, 0.7, color=COLOURS[fate])
        ax.annotate(str(count), (ahead, count), (0, 4), textcoords="offset points", ha="center")
    ax.axhline(truth, color="#555555", linewidth=1, linestyle="--")
    names = {each: "fits" if not each else f"{abs(each)} {'newer' if each > 0 else 'older'}" for each in counts}
    ax.set_xticks(list(names), list(names.values()))
    ax.set_ylim(0, max(truth, *counts.values()) * 1.15)
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    right = [each for each, count in counts.items() if count == truth]
    finding = (
        "only a state that fits its position counts right" if right == [0] else f"right where it is off by {right}"
    )
    dress(ax, finding, "the state, beside the position (records)", f"count after a restore (of {truth})")
    return ax


def plot_alignment(waits: Mapping[int, int], stored: Mapping[int, int], ax: Axes | None = None) -> Axes:
    """Plot what an aligned and an unaligned checkpoint cost, by how many times slower one of two channels is.

    `waits` counts the records of the fast channel that wait at an aligned task, `stored` the records of the slow
    channel that an unaligned task stores beside its count.
    """
    ax = ax or new_axes(8, 3.6)
    ax.plot(list(waits), list(waits.values()), "o-", color=COLOURS[Fate.LOST], label="aligned: records that wait")
    ax.plot(
        list(stored),
        list(stored.values()),
        "s-",
        color=COLOURS[Fate.DELIVERED],
        label="unaligned: records in the checkpoint",
    )
    slowest = max(waits)
    finding = f"one channel {slowest} times slower: {waits[slowest]:,} records wait, or {stored[slowest]:,} are stored"
    dress(ax, finding, "how many times slower the slow channel is", "records")
    ax.set_ylim(bottom=0)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend(frameon=False)
    return ax
