"""The timeline's data: every case is there, each is the model's own doing, and what the lessons teach is in them."""

from __future__ import annotations

import hashlib
import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from labs.schedules.model.checker import explore
from labs.schedules.model.stages import MODELS
from labs.schedules.timeline.timeline import timeline, timeline_data
from labs.schedules.timeline.two_batches import (
    BATCHES,
    CRASH,
    FAULTS,
    LABELS,
    LOST_ACKNOWLEDGEMENT,
    PLACES,
    PRESETS,
    ROWS,
    STATIONS,
    Switches,
    course_of,
    every_switching,
)
from labs.schedules.timeline.words import Verdict, judge, seen_by_reader

ROOT = Path(__file__).parents[2]
EVERYTHING = tuple(range(BATCHES * ROWS))
NUMBERS = range(len(PLACES))
FINE = Verdict(records=8, doubled=0, missing=0, torn=0)


def place(batch: int, station: str) -> int:
    return next(n for n, each in enumerate(PLACES) if (each.batch, each.station) == (batch, station))


def seen(switches: Switches, fault: str, number: int) -> tuple[tuple[int, ...], ...]:
    """Return what a reader sees at the fault, and in the end."""
    course = course_of(switches, fault, number)
    return tuple(seen_by_reader(state, switches.read_committed) for state in (course.broken, course.end))


def in_the_end(switches: Switches, fault: str, number: int) -> Verdict:
    return judge(seen(switches, fault, number)[1])


def test_every_combination_is_there():
    data = timeline_data()
    assert len(data["settings"]) == 2 ** len(LABELS) == 64
    assert len(PLACES) == BATCHES * (len(STATIONS) + 1) == len(data["places"])
    assert data["cases"].keys() == set(FAULTS)
    for fault in FAULTS:
        assert data["cases"][fault].keys() == data["settings"].keys()
        for outcomes in data["cases"][fault].values():
            assert len(outcomes) == len(PLACES)
            assert all(0 <= each < len(data["outcomes"]) for each in outcomes)
    json.dumps(data)


def test_each_case_says_what_the_model_does():
    data = timeline_data()
    for switches in every_switching():
        for fault in FAULTS:
            for number in NUMBERS:
                (at, _, _), (end, words, wrong), why, steps = data["outcomes"][
                    data["cases"][fault][switches.key][number]
                ]
                assert (at, end) == seen(switches, fault, number)
                verdict = judge(end)
                assert data["texts"][words].startswith(f"{verdict.records} of 8 records, {verdict.doubled} doubled, ")
                assert wrong == (verdict != FINE)
                assert data["texts"][why].endswith(".")
                assert [sight for _, *sights in steps for sight in sights][-1:] == [end]


def test_each_move_is_one_that_the_model_allows():
    for switches in {each.effective for each in every_switching()}:
        for fault in FAULTS:
            for number in NUMBERS:
                course = course_of(switches, fault, number)
                state = course.stage.start()
                for event, following in course.before + course.after:
                    if event.action == "crash":
                        assert following == state._replace(drivers=(state.drivers[0]._replace(alive=False),))
                    else:
                        assert (event, following) in list(course.stage.moves(state))
                    state = following
                assert [event.action for event, _ in course.before].count("crash") == (fault == CRASH)
                assert state.refused or not [m for m in course.stage.moves(state) if m[0].action != "start"]


def test_places_are_passed_in_their_order():
    """The later the crash, the more of it has happened."""
    for switches in PRESETS.values():
        moves = [[event for event, _ in course_of(switches, CRASH, n).before[:-1]] for n in NUMBERS]
        for earlier, later in itertools.pairwise(moves):
            assert later[: len(earlier)] == earlier
        assert [each.at for each in PLACES] == sorted(each.at for each in PLACES)
        assert PLACES[-1].at == 1


@pytest.mark.parametrize("number", NUMBERS)
def test_without_a_checkpoint_all_that_was_published_is_doubled(number):
    before, end = seen(PRESETS["no checkpoint"], CRASH, number)
    assert end == before + EVERYTHING


@pytest.mark.parametrize("number", NUMBERS)
def test_from_latest_nothing_is_doubled_and_what_was_read_is_lost(number):
    before, end = seen(PRESETS["start from latest"], CRASH, number)
    planned = [n for n in EVERYTHING if n < 4 * (PLACES[number].batch + (PLACES[number].station != "read"))]
    assert judge(end).doubled == 0
    assert set(EVERYTHING) - set(end) == set(planned) - set(before)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("name", ["at least once", "idempotent producer", "transactions, no marker", "the sink"])
def test_with_a_checkpoint_only_the_batch_in_flight_can_be_doubled(name, number):
    before, end = seen(PRESETS[name], CRASH, number)
    doubled = {record for record in end if end.count(record) > 1}
    in_flight = range(PLACES[number].batch * ROWS, (PLACES[number].batch + 1) * ROWS)
    assert doubled <= set(in_flight)
    assert judge(end).missing == 0
    if name in ("at least once", "idempotent producer"):
        noted = PLACES[number].station == "note"
        assert doubled == (set() if noted else set(before) & set(in_flight))


@pytest.mark.parametrize("fault", FAULTS)
def test_with_a_transaction_no_half_batch_is_ever_seen(fault):
    for switches in every_switching():
        torn = 0
        for number in NUMBERS:
            course = course_of(switches, fault, number)
            states = [state for _, state in course.before + course.after]
            torn += sum(judge(seen_by_reader(state, switches.read_committed)).torn for state in states)
        assert bool(torn) == (not (switches.transaction and switches.read_committed))


@pytest.mark.parametrize("fault", FAULTS)
def test_with_the_marker_in_the_transaction_nothing_is_doubled_wherever_it_goes_wrong(fault):
    assert {in_the_end(PRESETS["the sink"], fault, number) for number in NUMBERS} == {FINE}


def test_without_the_marker_the_commit_that_nobody_noted_is_doubled():
    doubled = {PLACES[n].station for n in NUMBERS if in_the_end(PRESETS["transactions, no marker"], CRASH, n) != FINE}
    assert doubled == {"commit"}
    assert in_the_end(PRESETS["transactions, no marker"], CRASH, place(1, "commit")).doubled == ROWS


def test_marker_without_a_transaction_comes_too_late_for_a_crash_before_it():
    switches = PRESETS["the sink"]._replace(transaction=False)
    doubled = {each: in_the_end(switches, CRASH, place(1, each)).doubled for each in (*STATIONS, "half")}
    assert {each: count for each, count in doubled.items() if count} == {"half": ROWS // 2, "rows": ROWS}


def test_without_read_committed_the_aborted_rows_are_seen():
    switches = PRESETS["the sink"]._replace(read_committed=False)
    doubled = {each: in_the_end(switches, CRASH, place(1, each)).doubled for each in (*STATIONS, "half")}
    assert {each: count for each, count in doubled.items() if count} == {"half": 2, "rows": 4, "marker": 4}


def test_a_lost_acknowledgement_doubles_one_record_unless_the_producer_is_idempotent():
    for switches in every_switching():
        doubled = {PLACES[n].station for n in NUMBERS if in_the_end(switches, LOST_ACKNOWLEDGEMENT, n) != FINE}
        assert doubled == (set() if switches.effective.idempotence else {"half", "rows"})
    assert in_the_end(PRESETS["at least once"], LOST_ACKNOWLEDGEMENT, place(0, "rows")).doubled == 1


def test_marker_of_a_query_whose_checkpoint_is_gone_is_refused():
    switches = PRESETS["the sink"]._replace(checkpoint=False)
    course = course_of(switches, CRASH, place(1, "half"))
    assert course.end.refused
    assert seen(switches, CRASH, place(1, "half"))[1] == EVERYTHING[:ROWS]
    fresh = course_of(switches, CRASH, place(0, "half"))
    assert not fresh.end.refused
    assert in_the_end(switches, CRASH, place(0, "half")) == FINE


@pytest.mark.bench
@pytest.mark.parametrize("name", ["at least once", "idempotent producer", "transactions, no marker"])
def test_what_goes_wrong_here_goes_wrong_in_the_model_that_tries_everything(name):
    found = {in_the_end(PRESETS[name], CRASH, n) != FINE for n in NUMBERS}
    assert True in found
    assert explore(MODELS[name]).anomaly == "doubled"


def test_what_has_nothing_to_do_is_said():
    settings = timeline_data()["settings"]
    assert settings[PRESETS["the sink"].key] == {"on": "101111", "idle": ["latest", "idempotence"], "absent": []}
    assert settings[PRESETS["no checkpoint"].key]["absent"] == ["begin", "marker", "commit"]
    assert settings[Switches(idempotence=False).key] == settings[Switches().key]


def test_data_fit_into_a_notebook():
    assert len(json.dumps(timeline_data())) < 100_000


@pytest.mark.bench
def test_same_data_in_another_process():
    code = "import json; from labs.schedules.timeline.timeline import timeline_data as d; print(json.dumps(d()))"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert digest(ran.stdout.strip()) == digest(json.dumps(timeline_data()))


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("name", PRESETS)
def test_where_there_are_no_widgets_there_is_a_picture_and_words(name):
    widget = timeline(name, place="mid_rows")
    shown = widget._repr_mimebundle_()
    bundle = shown[0] if isinstance(shown, tuple) else shown
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert bundle["text/html"].startswith('<img data-timeline="{&quot;shown&quot;: ')
    assert 'src="data:image/svg+xml;base64,' in bundle["text/html"]
    lines = bundle["text/plain"].splitlines()
    assert lines[0] == "batch 1, amid the rows (mid_rows): the job crashes."
    assert lines[2].startswith("Then a reader sees 0, 1, 2, 3")
    assert lines[-2].startswith("In the end a reader sees")
    assert widget.still().words == bundle["text/plain"] == repr(widget)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"stage": "magic"}, "there is no stage 'magic'; there are: no checkpoint, "),
        ({"place": "at_noon"}, "there is no place 'at_noon'; there are 0 to 17 and before_rows, "),
        ({"place": 18}, "there is no place 18; "),
        ({"fault": "flood"}, "there is no fault 'flood'; there are: crash, lost acknowledgement"),
        ({"only": ["luck"]}, "there is no switch 'luck'; there are: checkpoint, "),
    ],
)
def test_what_there_is_not_is_one_clear_line(arguments, why):
    with pytest.raises(ValueError, match=why):
        timeline(**arguments)


def test_words_name_no_switch_that_is_off_and_not_shown():
    few = timeline("no checkpoint", only=["latest"])
    assert few.in_words().splitlines()[1] == "restart from latest off, read_committed on."
    assert few.still().words == few.in_words()
