"""The plots of what exactly-once costs draw the numbers that they are given, and say so when there are none."""

from __future__ import annotations

import matplotlib
import pytest
from matplotlib import pyplot as plt

from labs.evidence.plots.cost_plots import plot_batch_parts, plot_latencies, plot_stall

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def widths(ax, y):
    return {
        container.get_label(): bar.get_width()
        for container, bar in ((c, b) for c in ax.containers for b in c if round(b.get_y() + b.get_height() / 2) == y)
        if bar.get_width()
    }


def test_each_line_of_latencies_is_one_sink():
    ax = plot_latencies({"at least once": [300, 400], "exactly once": [500, 600, 700]})
    assert {line.get_label(): list(line.get_ydata()) for line in ax.get_lines()} == {
        "at least once": [300, 400],
        "exactly once": [500, 600, 700],
    }


def test_parts_of_a_batch_and_what_lacks_to_the_total():
    ax = plot_batch_parts({"sink": {"addBatch": 200, "walCommit": 40, "getBatch": 0, "triggerExecution": 300}})
    assert widths(ax, 0) == {"addBatch": 200, "walCommit": 40, "other": 60}
    assert [text.get_text() for text in ax.texts] == ["200", "40", "60"]


def test_parts_that_exceed_the_total_leave_no_rest():
    ax = plot_batch_parts({"sink": {"write": 90, "commit": 20, "all": 100}}, total="all")
    assert widths(ax, 0) == {"write": 90, "commit": 20}


def test_stall_draws_log_end_and_last_stable_offset():
    ax = plot_stall([(0.0, 0, 2), (1.0, 0, 3), (2.0, 5, 5)])
    end, stable = ax.get_lines()
    assert list(end.get_ydata()) == [2, 3, 5]
    assert list(stable.get_ydata()) == [0, 0, 5]


@pytest.mark.parametrize(("plot", "nothing"), [(plot_latencies, {}), (plot_batch_parts, {}), (plot_stall, [])])
def test_without_data_it_says_so(plot, nothing):
    ax = plot(nothing)
    assert len(ax.texts) == 1
