"""Plots of counts and of audits. `stage_plots` draws the lab's stages side by side.

Each function takes data and optionally the axes to draw on, and returns the axes; the caller shows or saves the
figure. Titles are made from the data and state the finding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from labs.evidence.auditor.anomalies import Anomaly, Audit, Fate, Verdict
from labs.evidence.auditor.expected import busiest_ips, busiest_window
from labs.evidence.auditor.observed import utc
from labs.evidence.plots.style import (
    COLOURS,
    REQUESTS,
    draw_windows,
    dress,
    label_time,
    margin_between,
    new_axes,
    say_instead,
)
from labs.pipeline.records import WINDOW_MS

LONGEST_NAME = 39  # characters: a full IPv6 address


def plot_requests_per_window(totals: Counter[int], ax: Axes | None = None, *, title: str = "") -> Axes:
    """Plot the requests per window; `totals` is per window start in epoch milliseconds."""
    ax = ax or new_axes()
    draw_windows(ax, totals, {}, margin_between(totals), REQUESTS)
    finding = "no requests"
    if totals:
        busiest = busiest_window(totals)
        windows = f"{len(totals):,} windows" if len(totals) > 1 else "one window"
        finding = f"{totals.total():,} requests in {windows}"
        if min(totals.values()) < totals[busiest]:
            finding += f"; the busiest began at {utc(busiest)[11:19]} with {totals[busiest]:,}"
        elif len(totals) > 1:
            finding += f", {totals[busiest]:,} in each"
    dress(ax, title or finding, label_time(ax, totals), _per_window("requests"))
    if totals:
        _count_from_zero(ax)
    else:
        say_instead(ax, "no requests")
    return ax


def plot_top_ips(totals: Counter[str], n: int = 10, ax: Axes | None = None, *, title: str = "") -> Axes:
    """Plot the n IPs with the most requests; `totals` is per IP."""
    ax = ax or new_axes()
    top = busiest_ips(totals, n)
    bars = ax.barh(range(len(top)), [count for _, count in top], color=REQUESTS)
    ax.set_yticks(range(len(top)), [_shortened(ip) for ip, _ in top], parse_math=False)
    ax.bar_label(bars, fmt="{:,.0f}", padding=3)
    ax.invert_yaxis()
    ax.margins(x=0.15)
    finding = "no requests"
    if top:
        share = top[0][1] / totals.total()
        name = top[0][0] if len(top[0][0]) <= 15 else "the busiest IP"
        finding = f"{name} made {top[0][1]:,} of {totals.total():,} requests ({share:.1%})"
        if len(totals) > 1 and min(totals.values()) == top[0][1]:
            finding = f"each of {len(totals):,} IPs made {top[0][1]:,} requests"
    dress(ax, title or finding, "requests", f"top {len(top)} of {len(totals):,} IPs", grid="x")
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    if not top:
        say_instead(ax, "no requests")
    return ax


def plot_audit(audit: Audit, ax: Axes | None = None, *, title: str = "") -> Axes:
    """Plot what became of the results, per window, with the duplicated ones on top of the expected ones."""
    ax = ax or new_axes()
    bottoms: Counter[int] = Counter()
    windows = set().union(*audit.by_window.values())
    margin = margin_between(windows)
    patches = {}
    for fate in (Fate.DELIVERED, Fate.WRONG, Fate.LOST, Fate.DUPLICATED):
        heights = audit.by_window[fate]
        label = f"{fate} {heights.total():,}"
        patches[fate] = draw_windows(ax, heights, bottoms, margin, COLOURS[fate], label)
        bottoms.update(heights)
    dress(ax, title or _finding(audit), label_time(ax, windows), _per_window("results"))
    if windows:
        _count_from_zero(ax)
        ax.set_ylim(top=max(bottoms.values()) * 1.2)  # room for the legend
        shown = [patches[fate] for fate in Fate if fate is not Fate.WRONG or audit.by_window[fate]]
        ax.legend(handles=shown, loc="upper right", ncols=4, frameon=False, fontsize=9, handlelength=1)
    else:
        say_instead(ax, "there are no results to show")
    return ax


def plot_count_report(per_window: Counter[int], per_ip: Counter[str], audit: Audit) -> Figure:
    """Return a figure with the requests per window, the top IPs and the audit side by side."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(17, 4.6), layout="constrained")
    plt.close(figure)  # else a notebook shows it twice: as an open figure and as the returned value
    plot_requests_per_window(per_window, left)
    plot_top_ips(per_ip, ax=middle)
    plot_audit(audit, right)
    return figure


def _finding(audit: Audit) -> str:
    if audit.verdict is Verdict.UNKNOWN:
        return f"unknown: {audit.reason}"
    visible = (Anomaly.LOST, Anomaly.DUPLICATE)
    others = [a for a in Anomaly if audit.counts[a] and a.is_error and a not in visible]
    return (
        f"{audit.verdict}: {audit.delivered:,} of {audit.expected:,} results delivered, "
        f"{audit.duplicated:,} duplicated, {audit.lost:,} lost"
        + "".join(f", {audit.counts[anomaly]:,} {anomaly.name}" for anomaly in others)
    )


def _per_window(what: str) -> str:
    return f"{what} per {WINDOW_MS / 1000:g} s window"


def _count_from_zero(ax: Axes) -> None:
    ax.set_ylim(bottom=0)
    ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _shortened(name: str) -> str:
    half = LONGEST_NAME // 2
    return name if len(name) <= LONGEST_NAME else f"{name[:half]}…{name[-half:]}"


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

    `names` and `fates` change the legend and the colours. Raises ValueError unless `doubled` and `lost` have one
    number for each choice.
    """
    if not len(choices) == len(doubled) == len(lost):
        raise ValueError(f"{len(choices)} choices need that many numbers of each; found {len(doubled)} and {len(lost)}")
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
