"""The look that all plots share. A colour means the same in every lesson.

The colours are Okabe and Ito's, which can be told apart with any colour vision.
"""

from __future__ import annotations

from textwrap import fill
from typing import Literal, cast

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labs.evidence.auditor.anomaly import Fate

COLOURS = {
    Fate.DELIVERED: "#009E73",  # bluish green
    Fate.DUPLICATED: "#E69F00",  # orange
    Fate.LOST: "#D55E00",  # vermilion
    Fate.WRONG: "#CC79A7",  # reddish purple
}
REQUESTS = "#0072B2"  # blue: what was asked, before anything could become of it
NOTHING_KNOWN = "#DDDDDD"

CHARACTERS_PER_INCH = 13.5  # of a title


def new_axes(width: float = 8, height: float = 3.6) -> Axes:
    """Return the axes of a new figure (inches), which a notebook shows once, at the end of the cell."""
    _, ax = plt.subplots(figsize=(width, height), layout="constrained")
    return ax


def figure_of(ax: Axes) -> Figure:
    return cast(Figure, ax.figure)  # the lab draws in no figures within figures


def dress(ax: Axes, title: str, x: str, y: str, grid: Literal["x", "y", ""] = "y") -> None:
    """Set title and axis labels; draw grid lines across the axis of values, or none."""
    inches = ax.get_position().width * figure_of(ax).get_figwidth()
    # A title may name what comes from outside, and `$…$` is not meant as a formula there.
    ax.set_title(fill(title, max(20, int(inches * CHARACTERS_PER_INCH))), loc="left", fontsize=11, parse_math=False)
    ax.tick_params(labelsize=9)
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_axisbelow(True)
    if grid:
        ax.grid(axis=grid, color=NOTHING_KNOWN, linewidth=0.6)


def say_instead(ax: Axes, text: str) -> None:
    """Put a sentence where there is nothing to draw."""
    ax.text(0.5, 0.5, fill(text, 40), transform=ax.transAxes, ha="center", va="center", color="#555555")
    ax.set(xticks=[], yticks=[])
