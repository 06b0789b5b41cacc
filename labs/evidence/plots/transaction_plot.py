"""The log of a partition as a picture: what became of each record, and how far read_committed consumers get."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from itertools import groupby
from types import MappingProxyType
from typing import Any

import pandas
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from labs.evidence.auditor.anomalies import Fate
from labs.evidence.plots.style import COLOURS, NOTHING_KNOWN, REQUESTS, dress, figure_of, new_axes, say_instead

DARK = "#555555"
# Filled, outlined or hatched boxes tell the statuses apart, too, and not the colour alone.
LOOK: dict[str, dict[str, Any]] = {
    "committed": {"facecolor": COLOURS[Fate.DELIVERED], "edgecolor": COLOURS[Fate.DELIVERED]},
    "no transaction": {"facecolor": "white", "edgecolor": COLOURS[Fate.DELIVERED]},
    "open": {"facecolor": REQUESTS, "edgecolor": REQUESTS},
    "aborted": {"facecolor": "white", "edgecolor": DARK, "hatch": "/////", "linewidth": 0.6},
    "commit marker": {"facecolor": DARK, "edgecolor": DARK},
    "abort marker": {"facecolor": DARK, "edgecolor": DARK},
}
LETTERS = {"commit marker": "C", "abort marker": "A"}
TORN: dict[str, Any] = {"facecolor": COLOURS[Fate.WRONG], "edgecolor": "black", "hatch": "...", "linewidth": 0.6}
MOST_LETTERS = 60  # offsets; with more, a box is narrower than a letter
HEIGHT = 0.7  # of a box; the line of a producer is 1 high


def plot_transactions(
    log_entries: pandas.DataFrame,
    lso: int,
    ax: Axes | None = None,
    *,
    title: str = "",
    torn: Collection[int] = (),
    names: Mapping[int, str] = MappingProxyType({}),
) -> Axes:
    """Plot a partition's log, as `dump_log` returns it, by offset: one line for each producer and each of its epochs.

    `lso` is the last stable offset; the log behind it is shaded. `torn` are the offsets of records in batches that a
    reader sees only in part, `names` are labels for records, by offset.
    """
    columns = log_entries["producer id"], log_entries["epoch"]
    producers = list(dict.fromkeys(zip(*columns, strict=True)))
    ax = ax or new_axes(9, 1.9 + 0.5 * len(producers))
    dress(ax, title or _finding(log_entries, lso), "offset", "", grid="")
    if log_entries.empty:
        say_instead(ax, "nothing was written to it yet")
        return ax
    letters = len(log_entries) <= MOST_LETTERS
    for lane, (producer, epoch) in enumerate(producers):
        _draw(ax, lane, log_entries[(columns[0] == producer) & (columns[1] == epoch)], letters)
    lanes = {
        offset: producers.index(each)
        for offset, each in zip(log_entries.index, zip(*columns, strict=True), strict=True)
    }
    for offset in torn:
        ax.add_patch(Rectangle((offset - 0.42, lanes[offset] - HEIGHT / 2), 0.84, HEIGHT, **TORN))
    for offset, name in names.items() if letters else ():
        paper = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # legible on the dots of torn records
        box = paper if offset in torn else None
        ax.text(offset, lanes[offset], name, ha="center", va="center", fontsize=9, bbox=box)
    first, end = log_entries.index[0], log_entries.index[-1] + 1
    if lso < end:
        ax.axvspan(lso - 0.5, end - 0.5, color=NOTHING_KNOWN, alpha=0.6, zorder=0, linewidth=0)
    ax.axvline(lso - 0.5, color="black", linestyle="dashed", linewidth=1.2)
    ax.axvline(end - 0.5, color="black", linewidth=1.2)
    _name_lines(ax, lso, first, end)
    ax.set(xlim=(first - 0.7, end - 0.3), ylim=(len(producers) - 0.4, -1.1), xlabel="offset")
    ax.set_yticks(range(len(producers)), [_name_of(*each) for each in producers])
    ax.xaxis.set_major_locator(MaxNLocator(int(_inches(ax) * 3), integer=True, steps=[1, 2, 5, 10]))
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    ax.tick_params(axis="y", length=0)
    _add_legend(ax, log_entries, torn)
    return ax


def _draw(ax: Axes, lane: int, entries: pandas.DataFrame, letters: bool) -> None:
    """Draw a producer's entries: a box for each or, if there are very many, a box for each run of equal status."""
    gap = 0.08 if letters else 0
    numbered = enumerate(zip(entries.index, entries["status"], strict=True))
    for (_, status), run in groupby(numbered, key=lambda each: (each[1][0] - each[0], each[1][1])):
        offsets = [offset for _, (offset, _) in run]
        boxes = [(offset, 1) for offset in offsets] if letters else [(offsets[0], len(offsets))]
        for offset, width in boxes:
            corner = (offset - 0.5 + gap, lane - HEIGHT / 2)
            ax.add_patch(Rectangle(corner, width - 2 * gap, HEIGHT, **LOOK[status]))
            if letters and status in LETTERS:
                ax.text(offset, lane, LETTERS[status], color="white", ha="center", va="center", fontsize=9)


def _name_of(producer: int, epoch: int) -> str:
    return f"producer {producer}, epoch {epoch}" if producer >= 0 else "no producer id"


def _name_lines(ax: Axes, lso: int, first: int, end: int) -> None:
    if lso == end:
        _beside(ax, end, "left", f"last stable offset = log end = {end:,}")
        return
    _beside(ax, end, "left", f"log end {end:,}")
    _beside(ax, lso, "left" if lso - first > end - lso else "right", f"last stable offset {lso:,}")


def _beside(ax: Axes, offset: int, side: str, text: str) -> None:
    """Write a text to the left or right of the vertical line in front of an offset."""
    points, align = (-4, "right") if side == "left" else (4, "left")
    ax.annotate(text, (offset - 0.5, -0.6), (points, 0), textcoords="offset points", ha=align, va="bottom", fontsize=9)


def _add_legend(ax: Axes, log_entries: pandas.DataFrame, torn: Collection[int]) -> None:
    counts = Counter(log_entries["status"])
    counts["committed"] -= len(torn)
    handles = [
        Patch(**look, label=f"{LETTERS[status] + ': ' if status in LETTERS else ''}{status} {counts[status]:,}")
        for status, look in LOOK.items()
        if counts[status]
    ]
    if torn:
        handles.insert(1, Patch(**TORN, label=f"committed, half a batch {len(torn):,}"))
    columns = int(_inches(ax) / 1.35)  # inches for the longest label
    style: dict[str, Any] = {"frameon": False, "fontsize": 9, "handlelength": 1, "columnspacing": 1.2}
    ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(0, 0), borderaxespad=4, ncols=columns, **style)


def _inches(ax: Axes) -> float:
    return ax.get_position().width * figure_of(ax).get_figwidth()


def _finding(log_entries: pandas.DataFrame, lso: int) -> str:
    if log_entries.empty:
        return "the log is empty"
    records = log_entries[~log_entries["status"].isin(LETTERS)]
    before = records[records.index < lso]
    aborted = int((before["status"] == "aborted").sum())
    readable, waiting = len(before) - aborted, len(records) - len(before)
    finding = f"read_committed sees {readable:,} of {len(records):,} records"
    reasons = [f"{aborted:,} aborted"] if aborted else []
    reasons += [f"{waiting:,} behind the last stable offset"] if waiting else []
    return finding + (": " if reasons else "") + ", ".join(reasons)
