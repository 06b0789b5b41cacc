"""The look that all plots share. A colour means the same in every lesson.

The colours are Okabe and Ito's, which can be told apart with any colour vision.

An axis of event time shows windows: from only a few to those of a year.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from textwrap import fill
from typing import Literal, cast

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, DateFormatter
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch

from labs.evidence.auditor.anomalies import Fate
from labs.pipeline.records import WINDOW_MS

COLOURS = {
    Fate.DELIVERED: "#009E73",  # bluish green
    Fate.DUPLICATED: "#E69F00",  # orange
    Fate.LOST: "#D55E00",  # vermilion
    Fate.WRONG: "#CC79A7",  # reddish purple
}
REQUESTS = "#0072B2"  # blue: requests, before they are counted
NOTHING_KNOWN = "#DDDDDD"

CHARACTERS_PER_INCH = 13.5  # of a title


def new_axes(width: float = 8, height: float = 3.6) -> Axes:
    """Return the axes of a new figure (inches); a notebook shows the figure once, at the end of the cell."""
    _, ax = plt.subplots(figsize=(width, height), layout="constrained")
    return ax


def figure_of(ax: Axes) -> Figure:
    return cast(Figure, ax.figure)  # the lab uses no subfigures


def dress(ax: Axes, title: str, x: str, y: str, grid: Literal["x", "y", ""] = "y") -> None:
    """Set title and axis labels; draw the grid lines of one axis, or none."""
    inches = ax.get_position().width * figure_of(ax).get_figwidth()
    # A title may hold text from outside, in which `$…$` is no formula.
    ax.set_title(fill(title, max(20, int(inches * CHARACTERS_PER_INCH))), loc="left", fontsize=11, parse_math=False)
    ax.tick_params(labelsize=9)
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_axisbelow(True)
    if grid:
        ax.grid(axis=grid, color=NOTHING_KNOWN, linewidth=0.6)


def say_instead(ax: Axes, text: str) -> None:
    """Write a sentence on axes that have nothing to draw."""
    ax.text(0.5, 0.5, fill(text, 40), transform=ax.transAxes, ha="center", va="center", color="#555555")
    ax.set(xticks=[], yticks=[])


DAY_MS = 86_400_000
END_MS = 253_370_764_800_000  # 9999-01-01: close to the end of what matplotlib can label
MOST_SEPARATE_BARS = 30  # more would be mostly gaps


def draw_windows(
    ax: Axes,
    heights: Mapping[int, int],
    bottoms: Mapping[int, int],
    margin: float,
    colour: str,
    label: str | None = None,
) -> StepPatch:
    """Draw a bar for each window (start in epoch milliseconds) that has a height, all in one patch.

    `margin` (milliseconds) stays free on each side. Drawing separate bars would take a minute for a day of windows.
    Each bar has an outline, without which a single window in a whole day would be too narrow to see.
    """
    windows = [window for window in sorted(heights) if heights[window] and drawable(window)]
    edges: list[float] = []
    values: list[float] = []
    base: list[float] = []
    for window in windows:
        start, end = (window + margin) / DAY_MS, (window + WINDOW_MS - margin) / DAY_MS
        if edges and edges[-1] != start:
            values.append(float("nan"))
            base.append(0.0)
        if not edges or edges[-1] != start:
            edges.append(start)
        edges.append(end)
        values.append(bottoms.get(window, 0) + heights[window])
        base.append(bottoms.get(window, 0))
    return ax.stairs(
        values or [float("nan")],
        edges or [0, 1],
        baseline=base or [0],
        fill=True,
        facecolor=colour,
        edgecolor=colour,
        linewidth=0.8,
        label=label,
    )


def margin_between(windows: Collection[int]) -> float:
    """Return the milliseconds to leave free on each side of a bar, the same for all bars of a plot."""
    return WINDOW_MS * 0.08 if len(windows) <= MOST_SEPARATE_BARS else 0


def drawable(window: int) -> bool:
    return 0 <= window < END_MS


def label_time(ax: Axes, windows: Collection[int]) -> str:
    """Set the x axis to these windows and return its label."""
    shown = [window for window in windows if drawable(window)]
    if not shown:
        return "event time (UTC)"
    first, last = min(shown), max(shown) + WINDOW_MS
    padding = max((last - first) * 0.02, WINDOW_MS * (4 - (last - first) / WINDOW_MS) / 2)
    ax.set_xlim((first - padding) / DAY_MS, (last + padding) / DAY_MS)
    locator = AutoDateLocator(tz=UTC, minticks=2, maxticks=6)
    one_day = first // DAY_MS == (last - 1) // DAY_MS
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(
        DateFormatter("%H:%M:%S", tz=UTC) if one_day else ConciseDateFormatter(locator, tz=UTC)
    )
    day = f" on {datetime.fromtimestamp(first / 1000, UTC):%Y-%m-%d}" if one_day else ""
    hidden = len(windows) - len(shown)
    left_out = f"; windows left out, at impossible times: {hidden:,}" if hidden else ""
    return f"event time{day} (UTC){left_out}"
