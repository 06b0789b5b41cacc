"""A schedule as a drawing: every step is there, in words too, and the same schedule is the same bytes."""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from labs.schedules.schedule import HELD, Event, Schedule
from labs.schedules.sequence_diagram import draw

EVENTS = (
    Event("driver 1", "plan", 0, 1),
    Event("driver 1", "row", 0, 0, 0, "ok"),
    Event("driver 1", "commit", 0, epoch=0, answer=HELD),
    Event("driver 1", "crash"),
    Event("supervisor", "start", 0, whose="driver 2"),
    Event("driver 2", "read marker", 0, answer="none"),
    Event("network", "deliver again", 0, epoch=0, answer="ok", request="commit", whose="driver 1", sees=(0,)),
    Event("network", "lose", 0, epoch=0, request="commit", whose="driver 1"),
    Event("broker", "time out"),
    Event("driver 2", "row", 0, 0, 1, "fenced", sees=(0, 0)),
)
SCHEDULE = Schedule("a <wrong> sink", EVENTS, "doubled")
SVG = "{http://www.w3.org/2000/svg}"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def drawing():
    return ElementTree.fromstring(draw(SCHEDULE))


def test_text_alternative_is_the_schedule_in_words(drawing):
    assert drawing.find(f"{SVG}title").text == "a <wrong> sink: doubled"
    assert drawing.find(f"{SVG}desc").text == str(SCHEDULE)
    assert drawing.get("role") == "img"


def test_every_actor_has_a_lane_and_every_step_a_number(drawing):
    texts = [text.text for text in drawing.iter(f"{SVG}text")]
    assert {"supervisor", "driver 1", "driver 2", "network", "Kafka", "a reader sees"} <= set(texts)
    assert [text for text in texts[:40] if text in map(str, range(1, 11))] >= ["1", "2"]
    assert {"crashes", "held", "fenced", "starts at batch 0", "aborts: timed out"} <= set(texts)


def test_supervisor_and_network_have_a_lane_where_they_act():
    quiet = ElementTree.fromstring(draw(Schedule("alone", EVENTS[:2])))
    texts = [text.text for text in quiet.iter(f"{SVG}text")]
    assert texts[:4] == ["alone: no anomaly", "driver 1", "Kafka", "a reader sees"]


def test_supervisors_arrow_goes_from_its_lane_to_the_driver_that_it_starts(drawing):
    at = {text.text: int(text.get("x")) for text in drawing.iter(f"{SVG}text")}
    starts = next(int(text.get("y")) for text in drawing.iter(f"{SVG}text") if text.text == "starts at batch 0")
    [arrow] = [line for line in drawing.iter(f"{SVG}line") if line.get("y1") == line.get("y2") == str(starts - 4)]
    assert int(arrow.get("x1")) == at["supervisor"]
    assert at["driver 2"] - 12 <= int(arrow.get("x2")) <= at["driver 2"]


def test_lane_is_dotted_while_its_driver_sleeps_and_once_it_is_gone():
    start, wake = Event("supervisor", "start", 0, whose="driver 2"), Event("driver 1", "wake")
    events = (Event("driver 1", "plan", 0, 1), start, wake, Event("driver 1", "row", 0, 0, 0, "fenced"))
    drawn = ElementTree.fromstring(draw(Schedule("zombie", events)))
    at = {text.text: text.get("x") for text in drawn.iter(f"{SVG}text")}["driver 1"]
    lane = [line for line in drawn.iter(f"{SVG}line") if line.get("x1") == line.get("x2") == at]
    assert ["dotted" if line.get("stroke-dasharray") else "solid" for line in lane] == ["solid", "dotted"] * 2


def test_texts_of_one_step_do_not_run_into_each_other():
    long = "InvalidProducerIdMappingError"
    events = (Event("driver 1", "commit", 0, epoch=0, answer=long, sees=(0,)), *EVENTS)
    drawn = ElementTree.fromstring(draw(Schedule("recorded", events)))
    [answer] = [text for text in drawn.iter(f"{SVG}text") if text.text == long]
    boxes = [int(box.get("x")) for box in records_in(drawn)]
    assert int(answer.attrib["x"]) + 6.5 * len(long) < min(boxes)


def test_abort_and_its_delivery_and_a_plan_that_nobody_has_read_are_drawn():
    plan, abort = Event("driver 1", "plan", 3), Event("driver 1", "abort", 3, epoch=2, answer=HELD)
    late = Event("network", "deliver", 3, epoch=2, answer="fenced", request="abort", whose="driver 1")
    schedule = Schedule("recorded", (plan, abort, late))
    assert Schedule.from_json(schedule.to_json()) == schedule
    assert str(schedule).splitlines()[1:] == [
        "  1. driver 1 plans batch 3",
        "  2. driver 1 aborts batch 3 (epoch 2): held",
        "  3. network delivers driver 1's abort of batch 3 (epoch 2): fenced",
    ]
    texts = {text.text for text in ElementTree.fromstring(draw(schedule)).iter(f"{SVG}text")}
    assert {"plans batch 3", "abort · epoch 2", "abort of driver 1 · epoch 2 arrives"} <= texts


def test_number_of_a_record_is_drawn_and_a_batch_that_nobody_named_is_not():
    sent = Event("producer 1", "row", None, 2, answer="known already", sequence=5)
    schedule = Schedule("recorded", (sent, Event("producer 1", "commit", answer="ok")))
    assert Schedule.from_json(schedule.to_json()) == schedule
    assert str(schedule).splitlines()[2] == "  2. producer 1 commits: ok"
    texts = {text.text for text in ElementTree.fromstring(draw(schedule)).iter(f"{SVG}text")}
    assert {"producer 1", "record 2 · number 5", "known already"} <= texts


def test_a_record_that_is_seen_twice_stands_out(drawing):
    assert [box.get("fill") for box in records_in(drawing)].count("#E69F00") == 1


def test_what_a_reader_sees_stands_along_the_bottom_after_each_step_that_changed_it(drawing):
    assert strip_of(drawing) == ["a reader sees", "step 7", "0", "step 10", "0", "0"]
    assert [box.get("fill") for box in records_in(drawing, along=True)].count("#E69F00") == 1
    nobody = ElementTree.fromstring(draw(Schedule("unseen", EVENTS[:2])))
    assert strip_of(nobody) == ["a reader sees", "nothing, after any step"]
    emptied = ElementTree.fromstring(draw(Schedule("emptied", (EVENTS[-1], EVENTS[1]._replace(sees=())))))
    assert strip_of(emptied) == ["a reader sees", "step 1", "0", "0", "step 2", "nothing"]


def test_strip_along_the_bottom_is_one_row_and_shows_the_last_changes():
    events = tuple(Event("driver 1", "row", 0, n, answer="ok", sees=tuple(range(n + 1))) for n in range(12))
    drawn = ElementTree.fromstring(draw(Schedule("many", events)))
    said = strip_of(drawn)
    assert said[:3] == ["a reader sees", "…", "step 11"]
    assert said[-13:] == ["step 12", *map(str, range(12))]
    right = max(int(box.get("x")) + int(box.get("width")) for box in records_in(drawn, along=True))
    assert right <= int(drawn.attrib["width"]) - 20


def records_in(drawing, *, along=False):
    """The boxes of the records beside the steps, or of those along the bottom."""
    boxes = [box for box in drawing.iter(f"{SVG}rect") if box.get("rx")]
    return [box for box in boxes if (int(box.get("y")) > int(drawing.get("height")) - 48) == along]


def strip_of(drawing):
    return [t.text for t in drawing.iter(f"{SVG}text") if int(t.get("y")) > int(drawing.get("height")) - 48]


def test_nothing_lies_outside_the_page(drawing):
    width, height = int(drawing.get("width")), int(drawing.get("height"))
    for each in (*drawing.iter(f"{SVG}text"), *drawing.iter(f"{SVG}rect")):
        assert 0 <= int(each.get("x", 0)) <= width
        assert 0 <= int(each.get("y", 0)) <= height


@pytest.mark.bench
def test_same_bytes_in_another_process():
    code = "import sys\nfrom labs.schedules.sequence_diagram import draw\n"
    code += "from labs.schedules.schedule import Schedule\n"
    code += "print(draw(Schedule.from_json(sys.argv[1])), end='')"
    run: dict[str, Any] = {"cwd": ROOT, "capture_output": True, "text": True, "check": True}
    assert subprocess.run([sys.executable, "-c", code, SCHEDULE.to_json()], **run).stdout == draw(SCHEDULE)


def test_notebook_that_is_not_trusted_shows_an_image_with_the_words_beside_it():
    [image] = ElementTree.fromstring(f"<div>{draw(SCHEDULE)._repr_html_().replace('>', '/>')}</div>")
    kind, _, picture = image.attrib["src"].partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert base64.b64decode(picture).decode() == draw(SCHEDULE)
    assert image.attrib["alt"].split() == str(SCHEDULE).split()
