from types import SimpleNamespace

from matplotlib.colors import to_hex

from labs.evidence.auditor.anomalies import Fate
from labs.evidence.plots.checkpoint_plots import plot_batches
from labs.evidence.plots.style import COLOURS, NOTHING_KNOWN, REQUESTS


def batch(n: int, watermark: str, read: tuple[str, str] | None = None, rows: int = 0, written: int = 0):
    at = "2026-01-01T00:00:{}Z".format
    times = {"watermark": at(watermark)} if watermark else {"watermark": "1970-01-01T00:00:00.000Z"}
    if read:
        times |= {"min": at(read[0]), "max": at(read[1]), "avg": at(read[0])}
    state = SimpleNamespace(numRowsRemoved=written)
    return SimpleNamespace(batchId=n, eventTime=times, numInputRows=rows, stateOperators=[state])


# Two windows: the second batch moves the watermark past the first one's end, the third writes it.
BATCHES = [
    batch(0, "", ("00.000", "04.900"), 40),
    batch(1, "00.000", ("05.000", "09.999"), 40),
    batch(2, "05.000", None, 0, written=8),
    batch(3, "05.000"),
]


def row_of(ax, n: int) -> list[str]:
    """Return the colours of the patches in a batch's row, from left to right; open windows are left out."""
    patches = [p for p in ax.patches if n - 0.5 < p.get_y() + p.get_height() / 2 < n + 0.5 and p.get_facecolor()[3]]
    return [to_hex(p.get_facecolor(), keep_alpha=False).upper() for p in sorted(patches, key=lambda p: p.get_x())]


def test_a_window_is_green_in_the_row_of_the_batch_that_writes_it_and_grey_below():
    ax = plot_batches(BATCHES)
    assert row_of(ax, 1) == [REQUESTS]
    assert row_of(ax, 2) == [COLOURS[Fate.DELIVERED]]
    assert row_of(ax, 3) == [NOTHING_KNOWN]


def test_each_row_says_what_was_read_and_written():
    ax = plot_batches(BATCHES)
    assert [text.get_text() for text in ax.texts][1:3] == ["reads 40, writes 0", "reads 0, writes 8"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0", "1", "2", "3"]


def test_its_legend_explains_every_colour():
    legend = plot_batches(BATCHES).get_legend()
    assert legend
    assert [text.get_text() for text in legend.get_texts()][1:3] == ["windows it writes", "written before"]
    assert [to_hex(each.get_facecolor()).upper() for each in legend.get_patches()[:3]] == [
        REQUESTS,
        COLOURS[Fate.DELIVERED],
        NOTHING_KNOWN,
    ]


def test_a_query_that_read_nothing_is_drawn():
    assert [text.get_text() for text in plot_batches([batch(0, "")]).texts] == ["no batch read anything"]
    assert plot_batches([], title="mine").get_title(loc="left") == "mine"
