"""Two ways to be wrong, side by side: what was done twice and what was not done, per choice on the horizontal axis."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from labs.evidence.auditor.anomaly import Fate
from labs.evidence.plots.style import COLOURS, dress, new_axes, say_instead

WIDTH = 0.4


def plot_two_ways(
    choices: Sequence[object],
    doubled: Sequence[int],
    lost: Sequence[int],
    ax: Axes | None = None,
    *,
    title: str,
    x: str,
    y: str,
    names: tuple[str, str] = ("done twice", "not done"),
    fates: tuple[str, str] = (Fate.DUPLICATED, Fate.LOST),
) -> Axes:
    """Plot two bars for each choice: how much was doubled, and how much was lost.

    `names` is what the legend says, and `fates` gives the colours, where the two are something else.

    Raises ValueError unless there are as many of each as there are choices.
    """
    if not len(choices) == len(doubled) == len(lost):
        raise ValueError(f"{len(choices)} choices have {len(doubled)} and {len(lost)} numbers; each needs one of both")
    ax = ax or new_axes(max(6.0, 0.8 * len(choices) + 1), 3.4)
    for shift, numbers, fate, name in zip((-WIDTH / 2, WIDTH / 2), (doubled, lost), fates, names, strict=True):
        bars = ax.bar([n + shift for n in range(len(numbers))], numbers, WIDTH, color=COLOURS[Fate(fate)], label=name)
        ax.bar_label(bars, fontsize=9, padding=2)
    ax.set_xticks(range(len(choices)), [str(choice) for choice in choices])
    dress(ax, title, x, y)
    ax.set_ylim(0, max([1, *doubled, *lost]) * 1.35)
    ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    if choices:
        ax.legend(frameon=False, ncols=2, loc="upper center")
    else:
        say_instead(ax, "there are no choices to show")
    return ax
