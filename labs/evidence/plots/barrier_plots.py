"""Plots of a checkpoint: a state that does not fit its position, and what it costs to make it fit."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from labs.evidence.auditor.anomaly import Fate
from labs.evidence.plots.style import COLOURS, dress, new_axes


def plot_fit(counts: Mapping[int, int], truth: int, ax: Axes | None = None) -> Axes:
    """Plot {records by which the state is ahead of the position: count after a restore}; behind is negative."""
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
    """Plot two prices of a checkpoint, by how many times slower one of two channels is.

    `waits` has the records of the fast channel that an aligned task lets wait, `stored` the records of the slow one
    that an unaligned task stores beside its count.
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
