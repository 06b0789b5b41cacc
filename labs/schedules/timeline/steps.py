"""What happens from the fault on, step by step, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from labs.schedules.model.kafka import Stage
from labs.schedules.model.state import State
from labs.schedules.schedule import Event
from labs.schedules.timeline.course import AGAIN, CRASH, Course


class Step(NamedTuple):
    """What is done, in words, and the model's state afterwards."""

    words: str
    state: State


def steps_of(course: Course) -> list[Step]:
    """Put the fault and what follows it into words: a request and its answer are one step, as are records in a row."""
    if course.fault == CRASH:
        steps = [Step(f"the job crashes: {course.place.name}", course.broken)]
    elif course.is_disturbed:
        steps = list(_words(course.stage, course.before[-1].event, course.broken, course.broken))
    else:
        return [Step("no write to Kafka waits for its acknowledgement here: none is lost", course.end)]
    before, rows, again = course.broken, list[int](), course.fault != CRASH
    for event, state in course.after:
        if event.request == "row" and not again:
            rows.append(event.row or 0)
            steps = [*steps[: -1 if len(rows) > 1 else None], Step(_sends(rows), state)]
        elif event.actor in ("network", "supervisor") or event.action in ("plan", "note"):
            rows = []
            words = _second_time(event) if again else _words(course.stage, event, before, state)
            steps += [*words] if not again else [Step(str(words), state)]
            again = False
        before = state
    return steps


def _sends(rows: list[int]) -> str:
    return f"rows: sends record {rows[0]}" if len(rows) == 1 else f"rows: sends records {rows[0]} to {rows[-1]}"


def _second_time(event: Event) -> str:
    what = _what(event)
    if event.answer == "known already":
        return f"{what} arrives a second time: Kafka knows its sequence number, and does not write it again"
    if event.request == "row":
        return f"{what} arrives a second time: Kafka takes it for another one, and writes it"
    return f"{what} arrives a second time: it says what is so already"


def _what(event: Event) -> str:
    return f"record {event.row}" if event.request == "row" else f"the {event.request} of batch {event.batch}"


def _words(stage: Stage, event: Event, before: State, state: State) -> Iterator[Step]:
    """Say what has happened, in a line or two."""
    batch = event.batch
    words = {
        "start": f"another job starts from the checkpoint, at batch {batch}",
        "start anew": f"another job starts with an empty checkpoint, at record {event.row}",
        "plan": f"plan: finds offsets/{batch} there, and keeps to it"
        if event.answer
        else f"plan: writes offsets/{batch}, up to record {event.row}",
        "note": f"note: writes commits/{batch}",
        AGAIN: f"the acknowledgement of {_what(event)} is lost, and so it is sent once more",
    }
    if event.action in words:
        yield Step(words[event.action], state)
    elif event.request == "fence":
        aborted = _count(state, "aborted") - _count(before, "aborted")
        ended = f"; Kafka aborts what was open: {aborted} records" if aborted else ""
        yield Step(f"begin: gets an epoch{ended}", state)
    elif event.request == "read marker":
        whose = ", of the query before" if state.marker and state.marker.query != state.query else ""
        yield Step(f"begin: reads the marker: {event.answer}{whose}", state)
        if state.refused:
            yield Step("refuses: this marker does not fit its checkpoint, and somebody has to look", state)
        elif stage.program[state.drivers[-1].step] == "note":
            yield Step(f"batch {batch} is published: it is executed to nowhere, and not written", state)
    elif event.request == "marker":
        yield Step(f"marker: writes that batch {batch} is published", state)
    elif event.request == "commit":
        yield Step("commit: the rows are visible", state)


def _count(state: State, status: str) -> int:
    return sum(each == status for _, _, each in state.log)
