import math

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch

from labs.evidence.auditor.anomalies import Fate
from labs.evidence.auditor.audit import Result, audit
from labs.evidence.auditor.expected import requests_per_ip, requests_per_window
from labs.evidence.plots.count_plots import (
    plot_audit,
    plot_count_report,
    plot_requests_per_window,
    plot_top_ips,
)
from labs.evidence.plots.stage_plots import plot_stage_fault_heatmap, plot_staircase
from labs.evidence.plots.style import COLOURS, REQUESTS
from tests.plots import bars, legend

NOON = 1_740_830_400_000  # 2025-03-01T12:00:00Z
DAY = 86_400_000
A, B = "203.0.113.1", "2001:db8::1"
COUNTS = {(NOON, A): 30, (NOON, B): 20, (NOON + 10_000, A): 5}


@pytest.fixture
def ax() -> Axes:
    return Figure(figsize=(8, 4)).subplots()


def row(stage="checkpoint", fault="after_commit", lost=0, duplicated=0, verdict=None, expected=400) -> dict:
    verdict = verdict or ("invalid" if lost or duplicated else "valid")
    numbers = {"expected": expected, "lost": lost, "duplicated": duplicated}
    return {"stage": stage, "fault": fault, **numbers, "verdict": verdict}


def spans(ax: Axes, colour: str) -> list[tuple[int, float, float]]:
    """Return (window start, bottom, top) of the bars drawn in this colour."""
    [patch] = [patch for patch in ax.patches if to_hex(patch.get_facecolor()) == colour.lower()]
    assert isinstance(patch, StepPatch)
    tops, edges, bottoms = patch.get_data()
    return [
        (round((start + end) / 2 * DAY) // 5_000 * 5_000, bottom, top)
        for top, start, end, bottom in zip(tops, edges, edges[1:], np.broadcast_to(bottoms, tops.shape), strict=False)
        if not math.isnan(top)
    ]


def texts(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


PLOTS = [
    lambda ax=None: plot_requests_per_window(requests_per_window(COUNTS), ax),
    lambda ax=None: plot_top_ips(requests_per_ip(COUNTS), ax=ax),
    lambda ax=None: plot_audit(audit(COUNTS, []), ax),
    lambda ax=None: plot_staircase([row()], ax),
    lambda ax=None: plot_stage_fault_heatmap([row()], ax),
    lambda ax=None: plot_requests_per_window(requests_per_window({}), ax),
    lambda ax=None: plot_top_ips(requests_per_ip({}), ax=ax),
    lambda ax=None: plot_audit(audit({}, None), ax),
    lambda ax=None: plot_staircase([], ax),
    lambda ax=None: plot_stage_fault_heatmap([], ax),
]


@pytest.mark.parametrize("plot", PLOTS)
def test_each_plot_draws_on_the_given_axes_and_returns_them(plot, ax):
    assert plot(ax) is ax
    assert plt.get_fignums() == []
    assert ax.get_title(loc="left")
    ax.figure.draw_without_rendering()


@pytest.mark.parametrize("plot", PLOTS)
def test_each_plot_makes_one_figure_if_it_is_given_no_axes(plot):
    drawn = plot()
    assert plt.get_fignums() == [drawn.figure.number]


@pytest.mark.parametrize("plot", PLOTS)
def test_no_plot_changes_the_settings_of_matplotlib(plot, ax):
    before = dict(mpl.rcParams)
    plot(ax)
    assert dict(mpl.rcParams) == before


def test_no_two_meanings_share_a_colour():
    assert len({*COLOURS.values(), REQUESTS}) == len(Fate) + 1


# Counts


def test_requests_per_window_are_the_sums_over_the_ips(ax):
    plot_requests_per_window(requests_per_window(COUNTS), ax)
    assert spans(ax, REQUESTS) == [(NOON, 0, 50), (NOON + 10_000, 0, 5)]
    assert ax.get_ylim()[0] == 0


def test_requests_per_window_names_its_units_and_its_finding(ax):
    plot_requests_per_window(requests_per_window(COUNTS), ax)
    assert ax.get_xlabel() == "event time on 2025-03-01 (UTC)"
    assert ax.get_ylabel() == "requests per 5 s window"
    assert ax.get_title(loc="left") == "55 requests in 2 windows; the busiest began at 12:00:00 with 50"
    ax.figure.draw_without_rendering()
    assert "12:00:05" in [label.get_text() for label in ax.get_xticklabels()]


def test_a_title_given_replaces_the_finding(ax):
    assert plot_requests_per_window(requests_per_window(COUNTS), ax, title="mine").get_title(loc="left") == "mine"
    assert plot_audit(audit(COUNTS, []), ax, title="mine").get_title(loc="left") == "mine"


def test_equal_windows_have_no_busiest(ax):
    plot_requests_per_window(requests_per_window({(NOON, A): 7, (NOON + 5_000, A): 7}), ax)
    assert ax.get_title(loc="left") == "14 requests in 2 windows, 7 in each"


def test_a_day_of_windows_is_one_patch_with_every_height(ax):
    counts = {(NOON + 5_000 * i, A): 1 + i % 7 for i in range(17_280)}
    plot_requests_per_window(requests_per_window(counts), ax)
    assert spans(ax, REQUESTS) == [(window, 0, count) for (window, _), count in counts.items()]
    assert ax.get_xlabel() == "event time (UTC)"


def test_a_window_at_an_impossible_time_is_left_out_and_said_to_be(ax):
    plot_requests_per_window(requests_per_window({**COUNTS, (10**17, A): 1}), ax)
    assert [window for window, *_ in spans(ax, REQUESTS)] == [NOON, NOON + 10_000]
    assert ax.get_xlabel().endswith("windows left out, at impossible times: 1")


def test_top_ips_come_largest_first_with_their_numbers(ax):
    plot_top_ips(requests_per_ip({**COUNTS, (NOON, "c"): 1}), 2, ax)
    assert [bar.get_width() for bar in ax.patches] == [35, 20]
    assert [label.get_text() for label in ax.get_yticklabels()] == [A, B]
    assert texts(ax) == ["35", "20"]
    assert ax.yaxis_inverted()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("requests", "top 2 of 3 IPs")
    assert ax.get_title(loc="left") == f"{A} made 35 of 56 requests (62.5%)"


def test_ips_that_made_equally_many_requests_have_no_first(ax):
    plot_top_ips(requests_per_ip({(NOON, A): 10, (NOON, B): 10}), ax=ax)
    assert ax.get_title(loc="left") == "each of 2 IPs made 10 requests"


def test_a_name_too_long_for_the_axis_loses_its_middle(ax):
    plot_top_ips(requests_per_ip({(NOON, "start" + "x" * 200 + "end"): 1}), ax=ax)
    [label] = [label.get_text() for label in ax.get_yticklabels()]
    assert len(label) == 39
    assert label.startswith("start")
    assert label.endswith("end")


# Audits

KEYS = [(NOON, "a"), (NOON, "b"), (NOON, "c"), (NOON + 5_000, "a")]
OBSERVED = [Result(NOON, "a", 1), Result(NOON, "a", 1), Result(NOON, "b", 9), Result(NOON + 5_000, "a", 1)]


def test_an_audit_stacks_delivered_wrong_and_lost_and_puts_duplicated_on_top(ax):
    plot_audit(audit(dict.fromkeys(KEYS, 1), OBSERVED), ax)
    assert spans(ax, COLOURS[Fate.DELIVERED]) == [(NOON, 0, 1), (NOON + 5_000, 0, 1)]
    assert spans(ax, COLOURS[Fate.WRONG]) == [(NOON, 1, 2)]
    assert spans(ax, COLOURS[Fate.LOST]) == [(NOON, 2, 3)]
    assert spans(ax, COLOURS[Fate.DUPLICATED]) == [(NOON, 3, 4)]


def test_an_audit_says_what_it_found(ax):
    plot_audit(audit(dict.fromkeys(KEYS, 1), OBSERVED), ax)
    title = ax.get_title(loc="left").replace("\n", " ")
    assert title == "invalid: 2 of 4 results delivered, 1 duplicated, 1 lost, 1 OVERCOUNT"
    assert legend(ax) == ["delivered 2", "duplicated 1", "lost 1", "wrong 1"]
    assert ax.get_ylabel() == "results per 5 s window"


def test_a_clean_audit_shows_its_zeros(ax):
    plot_audit(audit(COUNTS, [Result(*key, count) for key, count in COUNTS.items()]), ax)
    assert ax.get_title(loc="left") == "valid: 3 of 3 results delivered, 0 duplicated, 0 lost"
    assert legend(ax) == ["delivered 3", "duplicated 0", "lost 0"]


def test_an_unknown_audit_says_why_instead_of_drawing(ax):
    plot_audit(audit(COUNTS, None), ax)
    assert ax.get_title(loc="left") == "unknown: nothing could be read; 0 of 3 expected results were read"
    assert texts(ax) == ["there are no results to show"]


def test_the_count_report_shows_three_plots_side_by_side_and_leaves_no_figure_open(tmp_path):
    figure = plot_count_report(requests_per_window(COUNTS), requests_per_ip(COUNTS), audit(COUNTS, []))
    assert [ax.get_ylabel() for ax in figure.axes] == [
        "requests per 5 s window",
        "top 2 of 2 IPs",
        "results per 5 s window",
    ]
    assert plt.get_fignums() == []
    for name in ("counts.png", "counts.svg", "counts.pdf"):
        figure.savefig(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 5_000


# Stages


def heights(ax: Axes, fate: Fate) -> list[float]:
    return [bar.get_height() for bar in bars(ax) if to_hex(bar.get_facecolor()) == COLOURS[fate].lower()]


def test_the_staircase_shows_the_duplicates_of_each_stage_down_to_exactly_zero(ax):
    plot_staircase([row("no checkpoint", duplicated=400), row(duplicated=40), row("+ batch marker")], ax)
    assert heights(ax, Fate.DUPLICATED) == [400, 40]
    assert texts(ax) == ["400", "40", "exactly 0"]
    assert ax.get_title(loc="left") == "duplicated results per stage: 400 → 40 → 0"
    assert ax.get_ylabel() == "results duplicated (of 400)"
    assert [label.get_text() for label in ax.get_xticklabels()] == [
        "no checkpoint",
        "checkpoint",
        "+ batch marker",
    ]


def test_the_staircase_shows_lost_results_beside_the_duplicated_ones(ax):
    plot_staircase([row("start from latest", lost=120), row(duplicated=40), row("+ batch marker")], ax)
    assert heights(ax, Fate.LOST) == [120, 0]
    assert heights(ax, Fate.DUPLICATED) == [0, 40]
    assert texts(ax) == ["0", "120", "40", "0", "exactly 0"]
    assert ax.get_ylabel() == "results duplicated or lost (of 400)"
    assert legend(ax) == ["duplicated", "lost"]


def test_the_staircase_adds_up_the_rows_of_a_stage(ax):
    plot_staircase([row(duplicated=40), row(fault="before_checkpoint", duplicated=2)], ax)
    assert heights(ax, Fate.DUPLICATED) == [42]
    assert ax.get_ylabel() == "results duplicated (of 800)"


def test_the_staircase_never_shows_zero_for_what_was_not_judged(ax):
    plot_staircase([row(verdict="unknown"), row("transactions", verdict="not reached")], ax)
    assert texts(ax) == ["unknown", "not reached"]
    assert ax.get_title(loc="left") == "duplicated results per stage: ? → ?"


def test_the_staircase_does_not_call_an_invalid_stage_exactly_zero(ax):
    plot_staircase([row(), row(fault="before_rows", verdict="invalid")], ax)
    assert texts(ax) == ["0, but\ninvalid"]


def test_the_heatmap_has_a_cell_per_stage_and_crash_point(ax):
    rows = [
        row("checkpoint", "before_rows"),
        row("checkpoint", "after_commit", duplicated=40),
        row("start from latest", "before_rows", lost=40),
        row("start from latest", "after_commit", lost=3, duplicated=1_000),
    ]
    plot_stage_fault_heatmap(rows, ax)
    assert texts(ax) == ["0", "+40 dup", "−40 lost", "−3 lost\n+1,000 dup"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["before_rows", "after_commit"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["checkpoint", "start from latest"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("crash point", "stage")
    centres = [(cell.get_x() + 0.5, cell.get_y() + 0.5) for cell in ax.patches]
    assert centres == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert to_hex(ax.patches[0].get_facecolor()) == COLOURS[Fate.DELIVERED].lower()
    assert to_hex(ax.patches[3].get_facecolor()) == COLOURS[Fate.LOST].lower()


def test_the_heatmap_hatches_what_was_not_run_or_not_reached_and_gives_it_no_number(ax):
    plot_stage_fault_heatmap([row(), row("transactions", "before_commit", verdict="not reached")], ax)
    assert texts(ax) == ["0", "not run", "not run", "not reached"]
    assert [bool(cell.get_hatch()) for cell in ax.patches] == [False, True, True, True]


def test_the_heatmap_does_not_show_an_invalid_cell_as_clean(ax):
    plot_stage_fault_heatmap([row(verdict="invalid")], ax)
    assert texts(ax) == ["invalid"]


def test_the_heatmap_names_the_stages_that_no_crash_hurts(ax):
    plot_stage_fault_heatmap([row(duplicated=1), row("marker"), row("marker", None)], ax)
    assert ax.get_title(loc="left") == "nothing lost or duplicated wherever crashed: marker"
    assert [label.get_text() for label in ax.get_xticklabels()] == ["after_commit", "no crash"]


def test_name_from_a_log_is_no_formula(tmp_path):
    ax = plot_top_ips(requests_per_ip({(NOON, r"$\frac$"): 3, (NOON, A): 2}))
    assert isinstance(ax.figure, Figure)
    ax.figure.savefig(tmp_path / "plot.png")
    assert [label.get_text() for label in ax.get_yticklabels()] == [r"$\frac$", A]
