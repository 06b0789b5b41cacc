import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from labs.evidence.auditor.anomalies import Fate
from labs.evidence.plots.count_plots import plot_two_ways
from labs.evidence.plots.style import COLOURS
from tests.plots import bars, legend


def drawn(ax, fate):
    return [bar.get_height() for bar in bars(ax) if to_hex(bar.get_facecolor()) == COLOURS[fate].lower()]


def test_each_choice_has_a_bar_of_both_colours_with_its_number():
    ax = plot_two_ways([18, 19], [0, 1], [8, 7], Figure().subplots(), title="a finding", x="crash", y="totals")
    assert drawn(ax, Fate.DUPLICATED) == [0, 1]
    assert drawn(ax, Fate.LOST) == [8, 7]
    assert [text.get_text() for text in ax.texts] == ["0", "1", "8", "7"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["18", "19"]


def test_legend_says_what_the_title_says():
    ax = plot_two_ways([1], [2], [3], title="too high or too low", x="x", y="y", names=("too high", "too low"))
    assert legend(ax) == ["too high", "too low"]
    assert ax.get_title(loc="left") == "too high or too low"


def test_another_fate_has_its_own_colour():
    ax = plot_two_ways([1], [2], [3], title="t", x="x", y="y", fates=("duplicated", "wrong"))
    assert (drawn(ax, Fate.WRONG), drawn(ax, Fate.LOST)) == ([3], [])


def test_nothing_to_draw_is_said():
    assert "no choices" in plot_two_ways([], [], [], title="t", x="x", y="y").texts[0].get_text()


def test_numbers_that_belong_to_no_choice_are_refused():
    with pytest.raises(ValueError, match="1 choices need that many numbers of each; found 2 and 1"):
        plot_two_ways([1], [2, 3], [4], title="t", x="x", y="y")
