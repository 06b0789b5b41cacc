"""All that the timeline can show, worked out beforehand: each combination of switches, fault and place.

What is alike is kept once, and named by its number, so that it is small enough for a notebook.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from labs.schedules.model.state import State
from labs.schedules.timeline.course import CRASH, FAULTS, LOST_ACKNOWLEDGEMENT, Course, course_of
from labs.schedules.timeline.places import PLACES, STATIONS
from labs.schedules.timeline.steps import steps_of
from labs.schedules.timeline.switches import BATCHES, LABELS, ROWS, Switches, every_switching
from labs.schedules.timeline.verdict import judge, seen_by_reader
from labs.schedules.timeline.why import explanation

FAULT_LABELS = {CRASH: "the job crashes", LOST_ACKNOWLEDGEMENT: "an acknowledgement is lost"}
FILES = {"plan": "offsets/", "note": "commits/"}  # where a step leaves a file with the batch's number for a name


@cache
def timeline_data() -> dict[str, Any]:
    """Return it as plain data. `cases[fault][switches][place]` is the number of an outcome."""
    texts, outcomes = Numbered(), Numbered()
    cases: dict[str, dict[str, list[int]]] = {fault: {} for fault in FAULTS}
    for switches in every_switching():
        for fault in FAULTS:
            courses = [course_of(switches, fault, place) for place in range(len(PLACES))]
            cases[fault][switches.key] = [outcomes.number(_outcome(each, switches, texts)) for each in courses]
    return {
        "batches": BATCHES,
        "rows": ROWS,
        "stations": [{"name": name, "file": FILES.get(name, "")} for name in STATIONS],
        "places": [{"at": place.at, "name": place.name, "batch": place.batch} for place in PLACES],
        "switches": [{"key": key, "label": label, "hint": hint} for key, (label, hint) in LABELS.items()],
        "faults": [{"key": fault, "label": FAULT_LABELS[fault], "stops": fault == CRASH} for fault in FAULTS],
        "settings": {switches.key: _setting(switches) for switches in every_switching()},
        "cases": cases,
        "outcomes": outcomes.values,
        "texts": texts.values,
    }


def _setting(switches: Switches) -> dict[str, Any]:
    """Return what is on in effect, which switches do nothing and why, and which steps there are."""
    on = switches.effective
    idle = ["latest"] if on.checkpoint else []
    idle += ["idempotence"] if on.transaction else []
    absent = {"begin": not (on.transaction or on.marker), "marker": not on.marker, "commit": not on.transaction}
    return {"on": on.key, "idle": idle, "absent": [station for station, gone in absent.items() if gone]}


def _outcome(course: Course, switches: Switches, texts: Numbered) -> tuple[Any, ...]:
    """Return (sight at the fault, sight in the end, why, steps), with texts by their numbers.

    A sight is (records seen, verdict in words, whether it is wrong); a step (words, records seen if that has changed).
    """

    def sight(state: State) -> tuple[int, ...]:
        return seen_by_reader(state, switches.read_committed)

    at, end = sight(course.broken), sight(course.end)
    steps: list[tuple[Any, ...]] = []
    seen = None
    for words, state in steps_of(course):
        now = sight(state)
        steps.append((texts.number(words), now) if now != seen else (texts.number(words),))
        seen = now
    sights = tuple(
        (seen, texts.number(judge(seen).words(at_the_end)), judge(seen).is_wrong(at_the_end))
        for seen, at_the_end in ((at, False), (end, True))
    )
    return *sights, texts.number(explanation(course, switches)), tuple(steps)


class Numbered:
    """Values, each kept once."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def number(self, value: Any) -> int:
        """Return the value's number."""
        if value not in self._numbers:
            self._numbers[value] = len(self.values)
            self.values.append(value)
        return self._numbers[value]
