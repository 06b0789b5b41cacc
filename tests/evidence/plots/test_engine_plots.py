"""The plots of a comparison of engines draw what they are given, and say so when there is nothing."""

from __future__ import annotations

import pytest

from labs.evidence.plots.stage_plots import ABOVE, plot_engines, plot_outages
from tests.plots import bars, points


def test_each_engine_is_a_line_with_a_mark_for_each_step():
    ax = plot_outages(
        {"a": [(-0.5, "rows in Kafka"), (0, "commit asked for")], "b": [(12, "aborted by Kafka"), (0, "noted as done")]}
    )
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]
    drawn = {(x, y) for line in ax.get_lines() if line.get_marker() != "None" for x, y in points(line)}
    assert drawn == {(-0.5, 0), (0, 0), (12, 1), (0, 1 - ABOVE)}


def test_bars_go_from_1_to_what_they_were_given():
    ax = plot_engines({"memory": {"a": 1.0, "b": 0.4}, "drain": {"a": 1.0, "b": 3.0, "c": 7.0}})
    assert [(bar.get_y(), round(bar.get_y() + bar.get_height(), 2)) for bar in bars(ax)] == [
        *((1, 1), (1, 1), (1, 0.4), (1, 3)),
        (1, 7),  # of which nothing else was measured
    ]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["memory", "drain"]


@pytest.mark.parametrize("plot", [plot_outages, plot_engines])
def test_nothing_is_said_in_words(plot):
    assert "no" in plot({}).texts[0].get_text()
