"""The pictures of the idea: the same bytes each time, words that say the same, nothing outside the page."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from exactly_once_kafka.points import FAULT_POINTS
from labs.schedules.lesson_pictures import draw_batch, draw_commits, draw_coordinator, draw_pipeline, draw_readers

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"
PICTURES = {
    "draw_pipeline()": draw_pipeline(),
    "draw_coordinator()": draw_coordinator(),
    "draw_readers()": draw_readers(),
    "draw_commits()": draw_commits(),
    "draw_batch()": draw_batch(),
    "draw_batch(transaction=False, batch=3)": draw_batch(transaction=False, batch=3),
    **{f"draw_batch({point!r})": draw_batch(point) for point in FAULT_POINTS},
}
CHARACTER = 0.62  # of the size of the letters: how wide one is, on an average


def texts(drawing: str) -> list[str]:
    return ["".join(each.itertext()) for each in ElementTree.fromstring(drawing).iter(f"{SVG}text")]


@pytest.mark.parametrize("name", PICTURES)
def test_picture_has_a_title_and_words(name):
    root = ElementTree.fromstring(PICTURES[name])
    assert root.get("role") == "img"
    assert (title := root.findtext(f"{SVG}title"))
    assert title == texts(PICTURES[name])[0] or name == "draw_pipeline()"
    assert root.findtext(f"{SVG}desc") == PICTURES[name].words == repr(PICTURES[name])
    assert "&quot;" not in PICTURES[name].words
    assert PICTURES[name]._repr_html_().startswith('<img src="data:image/svg+xml;base64,')


@pytest.mark.parametrize("name", PICTURES)
def test_nothing_lies_outside_the_page(name):
    root = ElementTree.fromstring(PICTURES[name])
    width, height = int(root.attrib["width"]), int(root.attrib["height"])
    assert width <= 1100
    for each in root.iter(f"{SVG}rect"):
        assert 0 <= int(each.get("x", 0)) <= int(each.get("x", 0)) + int(each.attrib["width"]) <= width
        assert 0 <= int(each.get("y", 0)) <= int(each.get("y", 0)) + int(each.attrib["height"]) <= height
    for each in root.iter(f"{SVG}text"):
        long = len("".join(each.itertext())) * int(each.attrib["font-size"]) * CHARACTER
        left = int(each.attrib["x"]) - {"start": 0, "middle": long / 2, "end": long}[each.attrib["text-anchor"]]
        assert left >= 0, "".join(each.itertext())
        assert left + long <= width, "".join(each.itertext())
        assert int(each.attrib["font-size"]) >= 12, "too small for a projector"
        assert 12 <= int(each.attrib["y"]) <= height - 4


@pytest.mark.bench
def test_same_bytes_in_another_process():
    code = "from tests.schedules.test_lesson_pictures import PICTURES; print(*PICTURES.values(), sep='', end='')"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout == "".join(PICTURES.values())


def test_every_fault_point_is_on_the_batch_in_the_order_in_which_it_is_passed():
    shown = texts(draw_batch(batch=7))
    points = [words.partition(":")[0] for words in shown if words.partition(":")[0] in FAULT_POINTS]
    assert points == list(FAULT_POINTS)
    assert {"offsets/7", "commits/7", "one transaction"} <= set(shown)


@pytest.mark.parametrize("point", FAULT_POINTS)
def test_what_comes_after_a_crash_does_not_happen(point):
    words = draw_batch(point, batch=5).words
    assert words.endswith("Here it crashes: what would come next does not happen.")
    assert f"{point}: " in words
    assert not any(later in words for later in FAULT_POINTS[FAULT_POINTS.index(point) + 1 :])
    assert "note, in the checkpoint" not in words
    pale = [box for box in ElementTree.fromstring(draw_batch(point)).iter(f"{SVG}rect") if box.get("stroke-dasharray")]
    assert len(pale) == {"before_rows": 5, "mid_rows": 4, "before_commit": 2}.get(point, 1)


def test_batch_without_a_transaction_has_no_marker():
    shown = " ".join(texts(draw_batch("after_commit", transaction=False)))
    assert not any(word in shown for word in ("marker", "epoch", "one transaction", "before_commit"))


@pytest.mark.parametrize(
    ("point", "transaction", "why"),
    [
        ("at_noon", True, "no fault point 'at_noon'; there are before_rows, mid_rows, before_commit, "),
        ("before_commit", False, "no fault point 'before_commit' without a transaction; there are before_rows, "),
    ],
)
def test_crash_that_cannot_be_is_one_clear_line(point, transaction, why):
    with pytest.raises(ValueError, match=why):
        draw_batch(point, transaction=transaction)


def test_coordinator_decides_before_the_marker_is_written():
    words = draw_coordinator().words
    parts = ("PrepareCommit", "control record", "CompleteCommit", "last stable offset is 4")
    assert [words.index(part) for part in parts] == sorted(words.index(part) for part in parts)
    assert {"Ongoing", "transaction log: topic __transaction_state"} <= set(texts(draw_coordinator()))


def test_pipeline_runs_from_the_log_to_the_auditor():
    shown = texts(draw_pipeline())
    stations = ["access.log", "ip_count_source", "PySpark", "ip_count_sink", "reader", "auditor"]
    assert [words for words in shown if words in stations] == stations
