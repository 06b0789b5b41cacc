"""A chaos run as a timeline: the strikes, the records sent and counted, the visible results."""

from __future__ import annotations

from typing import Any

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from labs.evidence.auditor.anomalies import Fate
from labs.evidence.plots.style import COLOURS, NOTHING_KNOWN, REQUESTS, dress
from labs.runs.chaos import ChaosReport

DARK = "#555555"
SHORTEST = 0.4  # seconds: the drawn width of a strike that was over at once


def plot_chaos(report: ChaosReport) -> Axes:
    """Plot the run and return the topmost axes; time runs from left to right in all of them."""
    kinds = [kind for kind in report.plan.kinds if report.faults[kind]]
    kinds += sorted({strike.kind for strike in report.strikes if not strike.injected})
    heights = (max(1.2, 0.3 * len(kinds) + 0.4), 2.2, 1.6)
    figure, axes = plt.subplots(
        3, 1, figsize=(11, sum(heights) + 1.8), height_ratios=heights, sharex=True, layout="constrained"
    )
    plt.close(figure)  # or a notebook would show it twice
    top, records, visible = axes
    _draw_strikes(top, report, kinds)
    samples = report.samples
    seconds = [sample.seconds for sample in samples]
    sent, counted = [sample.sent for sample in samples], [sample.sent - sample.lag for sample in samples]
    records.fill_between(seconds, counted, sent, step="post", color=NOTHING_KNOWN, linewidth=0, label="behind")
    records.step(seconds, sent, where="post", color=DARK, linewidth=1.8, linestyle="dashed", label="sent")
    records.step(seconds, counted, where="post", color=REQUESTS, linewidth=1.8, label="in complete batches")
    records.legend(loc="upper left", frameon=False, fontsize=9, ncols=3)
    dress(records, "records: what falls behind in an outage is made up for after it", "", "records")
    visible.step(seconds, [sample.visible for sample in samples], where="post", color=COLOURS[Fate.DELIVERED])
    dress(visible, "results that a read_committed reader has seen", "seconds since the chaos began", "results")
    _name_the_end(visible, report)
    for ax in (records, visible):
        ax.set_ylim(bottom=0)
        ax.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        ax.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        ax.axvline(report.plan.minutes * 60, color=DARK, linestyle="dotted", linewidth=1)
    return top


def _name_the_end(ax: Axes, report: ChaosReport) -> None:
    """Label the dotted line: after it, only faults that the plan still requires may strike."""
    end = 60 * report.plan.minutes
    late = max([end, *(sample.seconds for sample in report.samples)]) < 1.3 * end  # no room to the right of it
    text = f"the plan's {end:g} s are over" + (": now only faults that it still requires" if report.plan.least else "")
    place: dict[str, Any] = {"xytext": (-5, 0), "ha": "right"} if late else {"xytext": (5, 0), "ha": "left"}
    between = ax.get_xaxis_transform()
    paper = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    ax.annotate(
        text, (end, 0.85), xycoords=between, textcoords="offset points", color=DARK, fontsize=9, bbox=paper, **place
    )


def _draw_strikes(ax: Axes, report: ChaosReport, kinds: list[str]) -> None:
    for strike in report.strikes:
        if strike.kind in kinds:
            ended = strike.began if strike.ended is None else strike.ended
            width = max(ended - strike.began, SHORTEST)
            colour = COLOURS[Fate.LOST] if strike.injected else DARK
            ax.barh(kinds.index(strike.kind), width, 0.6, strike.began, color=colour)
    audit = report.audit
    finding = (
        f"{audit.verdict}: {sum(report.faults.values())} faults, {report.records:,} records, "
        f"{audit.expected:,} results: {audit.lost:,} lost, {audit.duplicated:,} duplicated"
    )
    dress(ax, finding, "", "", grid="x")
    ax.set_yticks(range(len(kinds)), kinds)
    ax.set_ylim(max(len(kinds), 1) - 0.5, -0.5)
    ax.axvline(report.plan.minutes * 60, color=DARK, linestyle="dotted", linewidth=1)
