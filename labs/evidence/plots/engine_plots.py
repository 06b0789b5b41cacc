"""Plots of a comparison of engines: what became of a transaction in an outage, and how fast they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from labs.evidence.auditor.anomaly import Fate
from labs.evidence.plots.style import COLOURS, NOTHING_KNOWN, REQUESTS, dress, new_axes, say_instead

# Not by colour alone: each kind of step has a mark of its own.
MARKS = {
    "rows in Kafka": ("o", REQUESTS),
    "noted as done": ("D", COLOURS[Fate.DUPLICATED]),
    "commit asked for": ("^", "black"),
    "killed": ("X", COLOURS[Fate.LOST]),
    "aborted by Kafka": ("s", "#555555"),
    "started again": (">", COLOURS[Fate.DELIVERED]),
}
ABOVE = 0.27  # of the distance of two lines
BARS = (REQUESTS, "#888888", "#333333", "#bbbbbb")
HATCHES = ("", "///", "...", "xxx")


def plot_outages(lines: Mapping[str, Sequence[tuple[float, str]]], ax: Axes | None = None, *, title: str = "") -> Axes:
    """Plot one line for each name: steps (second, what), of which those that have a mark are drawn.

    Seconds count from the request to commit, and are on a scale that shows both tenths of a second and minutes.
    """
    ax = ax or new_axes(9, 1.8 + 0.5 * len(lines))
    dress(ax, title or "a transaction whose commit never arrives", "seconds after its commit was asked for", "", "x")
    if not lines:
        say_instead(ax, "no outage was recorded")
        return ax
    for lane, steps in enumerate(lines.values()):
        ax.axhline(lane, color=NOTHING_KNOWN, linewidth=1, zorder=0)
        for what, (mark, colour) in MARKS.items():
            seconds = [second for second, seen in steps if seen == what]
            height = lane - ABOVE if what == "noted as done" else lane  # a note may come a hundredth before the request
            ax.plot(seconds, [height] * len(seconds), mark, color=colour, markersize=9, linestyle="none")
    for what, (mark, colour) in MARKS.items():
        ax.plot([], [], mark, color=colour, linestyle="none", label=what)
    ax.set_xscale("symlog", linthresh=1)
    ax.set_xticks([-1, 0, 1, 10], ["-1", "0", "1", "10"])
    ax.set_yticks(range(len(lines)), list(lines))
    ax.set_ylim(len(lines) - 0.5, -0.5)
    ax.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1, 1))
    return ax


def plot_engines(ratios: Mapping[str, Mapping[str, float]], ax: Axes | None = None, *, title: str = "") -> Axes:
    """Plot what was measured -> engine -> ratio, as groups of bars up or down from a line at 1: less is better."""
    ax = ax or new_axes(9, 3.4)
    dress(ax, title or "engines compared: less is better", "", "ratio")
    engines = list(dict.fromkeys(engine for values in ratios.values() for engine in values))
    if not engines:
        say_instead(ax, "nothing was measured")
        return ax
    width = 0.8 / len(engines)
    for n, engine in enumerate(engines):
        measured = {group: values[engine] for group, values in enumerate(ratios.values()) if engine in values}
        places = [group + (n - (len(engines) - 1) / 2) * width for group in measured]
        heights = [ratio - 1 for ratio in measured.values()]
        look: dict[str, Any] = {"color": BARS[n % len(BARS)], "hatch": HATCHES[n % len(HATCHES)], "edgecolor": "white"}
        bars = ax.bar(places, heights, width * 0.9, bottom=1, label=engine, **look)
        ax.bar_label(bars, [f"{ratio:.2g}" for ratio in measured.values()], fontsize=9, padding=2)
    ax.axhline(1, color="black", linewidth=1, zorder=1.5)
    # Twice as much is as far from 1 as half of it.
    ax.set_yscale("log")
    ax.set_yticks([0.1, 1, 10], ["0.1", "1", "10"])
    ax.minorticks_off()
    ax.margins(y=0.15)
    ax.set_xticks(range(len(ratios)), list(ratios))
    ax.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1, 1))
    return ax
