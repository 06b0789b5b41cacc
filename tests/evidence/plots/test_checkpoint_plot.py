from pathlib import Path

import matplotlib
from matplotlib import pyplot as plt

from labs.evidence.checkpoint.checkpoint import Batch, Checkpoint
from labs.evidence.plots.checkpoint_plots import FILL, plot_checkpoint

START_MS = 1_767_225_600_000


def batch(n: int, committed: bool = True, **more) -> Batch:
    at = ("source", 0)
    return Batch(n, True, committed, {at: 10 * n}, {at: 10 * n + 10}, START_MS + 1_000 * n if n else 0, **more)


def texts(ax) -> list[str]:
    return [text.get_text() for text in ax.texts]


def test_the_title_says_what_a_restart_does():
    ax = plot_checkpoint(Checkpoint(Path("c"), "id", (batch(0), batch(1, committed=False))))
    assert ax.get_title(loc="left") == "Batch 1 is planned and not committed: a restart runs it again"
    assert plot_checkpoint(Checkpoint(Path("c"), "id"), title="mine").get_title(loc="left") == "mine"


def test_each_batch_shows_status_offsets_and_watermark():
    damaged = Batch(2, False, True, damaged=("offsets/2",))
    ax = plot_checkpoint(Checkpoint(Path("c"), "id", (batch(0), batch(1, committed=False), damaged)))
    said = texts(ax)
    for text in (
        "0: 0–10",
        "0: 10–20",
        "unknown",
        "00:00:01.000",
        "planned\ncommitted",
        "planned\nin flight",
        "damaged",
    ):
        assert text in said
    colours = [matplotlib.colors.to_hex(patch.get_facecolor()).upper() for patch in ax.patches]
    assert colours == [FILL[status] for status in ("committed", "in flight", "damaged")]
    assert len({patch.get_linestyle() for patch in ax.patches}) == 3


def test_only_the_last_batches_are_drawn_and_the_rest_is_mentioned():
    ax = plot_checkpoint(Checkpoint(Path("c"), "id", tuple(map(batch, range(20)))), last=5)
    assert len(ax.patches) == 5
    assert {"15", "19"} <= set(texts(ax))
    assert ax.get_xlabel() == "the last 5 of the 20 batches in the checkpoint"


def test_it_draws_on_the_axes_that_it_is_given():
    _, ax = plt.subplots()
    assert plot_checkpoint(Checkpoint(Path("c"), "id", (batch(0),)), ax) is ax


def test_a_checkpoint_without_a_batch_is_no_error():
    ax = plot_checkpoint(Checkpoint(Path("c"), "id"))
    assert texts(ax) == ["no batch is planned yet"]
