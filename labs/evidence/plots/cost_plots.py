"""Plots of what exactly-once costs: by the size of the batch, and readers who are held up."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import StrMethodFormatter

from labs.evidence.plots.style import NOTHING_KNOWN, REQUESTS, dress, new_axes, say_instead

# Not by colour alone: each line has a marker and a stroke of its own.
LINES = ((REQUESTS, "s", "-"), ("black", "^", "--"), ("#888888", "o", "-."), ("#555555", "D", ":"))


def plot_by_batch_size(
    lines: Mapping[str, Mapping[int, float]], ax: Axes | None = None, *, title: str, y: str, ratio: bool = False
) -> Axes:
    """Plot one line for each name, rows per batch -> value, sizes on a logarithmic axis, and so are the values.

    A `ratio` is on a plain axis from 0, with a line at 1.
    """
    ax = ax or new_axes(8, 3.8)
    dress(ax, title, "rows per batch", y)
    if not any(lines.values()):
        say_instead(ax, "no batch was measured")
        return ax
    for (name, values), (colour, marker, style) in zip(lines.items(), itertools.cycle(LINES), strict=False):
        ax.plot(list(values), list(values.values()), style, color=colour, marker=marker, markersize=6, label=name)
    ax.set_xscale("log")
    ax.set_xticks(sorted({size for values in lines.values() for size in values}))
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    ax.minorticks_off()
    if ratio:
        ax.axhline(1, color="black", linewidth=1)
        ax.set_ylim(bottom=0)
    else:
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    ax.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1, 1))
    return ax


def plot_stall(samples: Sequence[tuple[float, int, int]], ax: Axes | None = None, *, title: str = "") -> Axes:
    """Plot samples (second, last stable offset, log end); what committed readers cannot read is shaded."""
    ax = ax or new_axes(8, 3.2)
    dress(ax, title or "committed readers wait for the transaction that nobody ends", "seconds", "offset")
    if not samples:
        say_instead(ax, "nothing was sampled")
        return ax
    seconds, stable, end = zip(*samples, strict=True)
    ax.fill_between(seconds, stable, end, step="post", color=NOTHING_KNOWN, linewidth=0, label="waiting")
    ax.step(seconds, end, where="post", color="black", linewidth=1.2, label="log end")
    ax.step(seconds, stable, where="post", color=REQUESTS, linestyle="dashed", label="last stable offset")
    ax.set_ylim(bottom=0)
    ax.legend(frameon=False, fontsize=9, loc="upper left")
    return ax
