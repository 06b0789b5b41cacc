"""A chaos run as a timeline: what was struck when, the records counted and behind, the results visible."""

from __future__ import annotations

import itertools
from operator import attrgetter

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from labs.evidence.auditor.anomaly import Fate
from labs.evidence.plots.style import COLOURS, REQUESTS, dress
from labs.runs.chaos_report import ChaosReport

DARK = "#555555"
SHORTEST = 0.4  # seconds: how wide a strike is drawn that was over at once


def plot_chaos(report: ChaosReport) -> Axes:
    """Plot the run and return the topmost axes; time runs from left to right in all of them."""
    kinds = [kind for kind in report.plan.kinds if report.faults[kind]]
    kinds += sorted({strike.kind for strike in report.strikes if not strike.injected})
    heights = (max(1.2, 0.3 * len(kinds) + 0.4), 1.3, 1.3, 1.6)
    figure, axes = plt.subplots(
        4, 1, figsize=(11, sum(heights) + 1.8), height_ratios=heights, sharex=True, layout="constrained"
    )
    plt.close(figure)  # a notebook would show it a second time, beside the one that is returned
    top, throughput, lag, visible = axes
    _draw_strikes(top, report, kinds)
    samples = report.samples
    seconds = [sample.seconds for sample in samples]
    for count, label, colour in ((attrgetter("sent"), "sent", DARK), (attrgetter("processed"), "counted", REQUESTS)):
        rates = [
            (count(now) - count(before)) / (now.seconds - before.seconds) for before, now in itertools.pairwise(samples)
        ]
        throughput.step(seconds[1:], rates, where="pre", color=colour, label=label, linewidth=1.2)
    throughput.legend(loc="upper left", frameon=False, fontsize=9, ncols=2)
    dress(throughput, "throughput: what was missed in an outage is made up for after it", "", "records/s")
    lag.fill_between(seconds, [sample.lag for sample in samples], color=REQUESTS, alpha=0.6, linewidth=0)
    dress(lag, "records behind: sent, and in no complete batch yet", "", "records")
    visible.step(seconds, [sample.visible for sample in samples], where="post", color=COLOURS[Fate.DELIVERED])
    dress(visible, "results that a read_committed reader has seen", "seconds since the chaos began", "results")
    for ax in (throughput, lag, visible):
        ax.set_ylim(bottom=0)
        ax.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        ax.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        ax.axvline(report.plan.minutes * 60, color=DARK, linestyle="dotted", linewidth=1)
    return top


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
    ax.set_ylim(len(kinds) - 0.5, -0.5)
    ax.axvline(report.plan.minutes * 60, color=DARK, linestyle="dotted", linewidth=1)
