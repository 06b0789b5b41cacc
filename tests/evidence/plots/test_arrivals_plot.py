import numpy as np
from matplotlib.colors import to_hex

from labs.evidence.auditor.anomalies import Fate
from labs.evidence.plots.checkpoint_plots import plot_arrivals
from labs.evidence.plots.style import COLOURS

START_MS = 1_767_225_600_000
ACCESSES = [(START_MS + 1_000 * second, ip) for second, ip in ((1, "a"), (12, "a"), (2, "b"))]
WATERMARKS = [None, None, START_MS + 7_000]


def test_a_request_that_was_dropped_is_marked_and_counted_in_the_title():
    ax = plot_arrivals(ACCESSES, WATERMARKS, {(START_MS, "b")})
    assert ax.get_title(loc="left").startswith("1 of 3 requests came when the watermark")
    drawn = {
        each.get_label(): (to_hex(np.asarray(each.get_facecolor())[0]).upper(), np.asarray(each.get_offsets()).tolist())
        for each in ax.collections
    }
    assert drawn == {
        "counted": (COLOURS[Fate.DELIVERED], [[1, 1], [2, 12]]),
        "dropped": (COLOURS[Fate.LOST], [[3, 2]]),
    }


def test_the_watermark_that_judges_a_request_stands_at_its_number():
    [line] = plot_arrivals(ACCESSES, WATERMARKS, set()).lines
    assert [np.asarray(each)[-1] for each in line.get_data()] == [3, 7]
