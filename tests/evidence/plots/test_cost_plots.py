"""The plots of what exactly-once costs draw the numbers that they are given, and say so when there are none."""

from __future__ import annotations

from functools import partial

import pytest
from matplotlib.lines import Line2D

from labs.evidence.plots.stage_plots import plot_by_batch_size, plot_stall
from tests.plots import points


def heights(line: Line2D) -> list[float]:
    return [y for _, y in points(line)]


def test_each_line_is_one_part_by_the_size_of_the_batch():
    ax = plot_by_batch_size({"rows": {10: 80.0, 1000: 90.0}, "commit": {10: 2.0, 1000: 3.0}}, title="t", y="ms")
    assert {line.get_label(): heights(line) for line in ax.get_lines()} == {"rows": [80, 90], "commit": [2, 3]}
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert [label.get_text() for label in ax.get_xticklabels()] == ["10", "1,000"]


def test_a_ratio_is_seen_from_0_with_a_line_at_1():
    ax = plot_by_batch_size({"ours": {10: 0.8, 1000: 1.1}}, title="t", y="ratio", ratio=True)
    assert (ax.get_yscale(), ax.get_ylim()[0]) == ("linear", 0)
    assert [heights(line) for line in ax.get_lines()] == [[0.8, 1.1], [1, 1]]


def test_stall_draws_log_end_and_last_stable_offset():
    ax = plot_stall([(0.0, 0, 2), (1.0, 0, 3), (2.0, 5, 5)])
    end, stable = ax.get_lines()
    assert heights(end) == [2, 3, 5]
    assert heights(stable) == [0, 0, 5]


@pytest.mark.parametrize(("plot", "nothing"), [(partial(plot_by_batch_size, title="t", y="ms"), {}), (plot_stall, [])])
def test_without_data_it_says_so(plot, nothing):
    ax = plot(nothing)
    assert len(ax.texts) == 1
