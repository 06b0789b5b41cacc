"""A course of events in words: each step, what a reader sees and what is wrong with it, and why it ends as it does.

All of it is derived from the states and events of the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from labs.schedules.model.drivers_and_network import Stage
from labs.schedules.model.state import State
from labs.schedules.schedule import Event
from labs.schedules.timeline.two_batches import AGAIN, BATCHES, CRASH, ROWS, Course, Switches


def seen_by_reader(state: State, read_committed: bool) -> tuple[int, ...]:
    """Return the records that a reader sees, in the order of the topic."""
    return tuple(record for record, _, status in state.log if status == "committed" or not read_committed)


class Verdict(NamedTuple):
    """How many different records, repetitions, missing records and torn batches a reader sees."""

    records: int
    doubled: int
    missing: int
    torn: int

    def is_wrong(self, at_the_end: bool) -> bool:
        """Tell whether a reader must not see this. Before the end, missing records may still come."""
        return bool(self.doubled or self.torn or (at_the_end and self.missing))

    def words(self, at_the_end: bool) -> str:
        """Return it in words. Before the end, a missing record is not lost."""
        all_records = BATCHES * ROWS
        gone = "lost" if at_the_end else "not there yet"
        torn = "no batch torn" if not self.torn else f"{self.torn} batch{'es' if self.torn > 1 else ''} torn"
        return f"{self.records} of {all_records} records, {self.doubled} doubled, {self.missing} {gone}, {torn}"


@lru_cache
def judge(seen: tuple[int, ...]) -> Verdict:
    """Judge what a reader sees."""
    records = set(seen)
    of_batches = [sum(record // ROWS == batch for record in records) for batch in range(BATCHES)]
    return Verdict(
        records=len(records),
        doubled=len(seen) - len(records),
        missing=BATCHES * ROWS - len(records),
        torn=sum(0 < count < ROWS for count in of_batches),
    )


class Step(NamedTuple):
    """A step in words, and the model's state after it."""

    words: str
    state: State


def steps_of(course: Course) -> list[Step]:
    """Put the fault and its consequences into words. Request and answer are one step; so are several rows."""
    if course.fault == CRASH:
        steps = [Step(f"the job crashes: {course.place.name}", course.broken)]
    elif course.is_disturbed:
        steps = list(_words(course.stage, course.before[-1].event, course.broken, course.broken))
    else:
        return [Step("no write to Kafka waits for an acknowledgement here, so none is lost", course.end)]
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
        return f"{what} arrives a second time: Kafka cannot tell that it is a repetition, and writes it again"
    return f"{what} arrives a second time: it changes nothing"


def _what(event: Event) -> str:
    return f"record {event.row}" if event.request == "row" else f"the {event.request} of batch {event.batch}"


def _words(stage: Stage, event: Event, before: State, state: State) -> Iterator[Step]:
    """Yield an event in words, as one step or two."""
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
        aborted = _aborted(state) - _aborted(before)
        ended = f"; Kafka aborts what was open: {aborted} records" if aborted else ""
        yield Step(f"begin: gets an epoch{ended}", state)
    elif event.request == "read marker":
        whose = ", of the query before" if state.marker and state.marker.query != state.query else ""
        yield Step(f"begin: reads the marker: {event.answer}{whose}", state)
        if state.refused:
            yield Step("refuses: this marker does not fit the checkpoint, and somebody has to decide what to do", state)
        elif stage.wanted(state, state.drivers[-1]) == "note":
            yield Step(f"batch {batch} is published: it is executed to nowhere, and not written", state)
    elif event.request == "marker":
        yield Step(f"marker: writes that batch {batch} is published", state)
    elif event.request == "commit":
        yield Step("commit: the rows are visible", state)


def _aborted(state: State) -> int:
    return sum(status == "aborted" for _, _, status in state.log)


# Why it ends so


def explanation(course: Course, switches: Switches) -> str:
    """Return one sentence that says why the course ends so, for a reader with these switches."""
    on = switches.effective
    if course.fault != CRASH:
        return _why_not_lost(course)
    doubled = judge(seen_by_reader(course.end, on.read_committed)).doubled
    if course.end.refused:
        return _refused(course)
    if not on.checkpoint:
        return _without_checkpoint(course, on, doubled)
    batch = course.end_of_first + 1  # the batch in flight
    if _aborted(course.end) and not on.read_committed:
        return (
            f"Kafka aborted the transaction that the crash left open, and an abort deletes nothing: this reader does "
            f"not ask for committed records only, and sees the {_aborted(course.end)} aborted ones as well."
        )
    if doubled and on.transaction:
        return (
            f"The transaction was committed and commits/{batch} was not written: nothing tells the restart that batch "
            f"{batch} is published, so it publishes it again, in a transaction of its own."
        )
    if doubled and on.marker:
        return (
            f"Rows and marker are two writes here, and the crash came before the second: the restart finds no marker "
            f"of batch {batch}, and writes its {_count(doubled)} a second time."
        )
    if doubled:
        return (
            f"offsets/{batch} was written and commits/{batch} was not: the restart carries out batch {batch} again, "
            f"and Kafka takes the {_count(doubled)} that are there already for new ones."
        )
    return _exactly_once(course, on, batch)


def _exactly_once(course: Course, on: Switches, batch: int) -> str:
    state = course.broken
    if batch == course.stage.batches or batch >= len(state.planned):
        return (
            "No batch was in flight: each batch in offsets/ is in commits/ too, and the restart goes on with the next."
        )
    if course.finds_its_marker:
        together = "in one transaction with them" if on.transaction else "right behind them"
        return (
            f"The rows of batch {batch} were there, and the marker, written {together}, said so: the restart found "
            "it, and wrote nothing."
        )
    if _aborted(course.end):
        return (
            f"The crash left a transaction open with {_count(_aborted(course.end))} in it; Kafka aborted it when the "
            f"restart asked for an epoch, and of batch {batch} only the second writing is visible."
        )
    return f"Nothing of batch {batch} was in Kafka: the restart found its plan, and carried it out for the first time."


def _without_checkpoint(course: Course, on: Switches, doubled: int) -> str:
    lost = judge(seen_by_reader(course.end, on.read_committed)).missing
    if on.latest and lost:
        return f"The restart remembers nothing and starts behind what was read: {_count(lost)} will never be written."
    if on.latest:
        return "The restart remembers nothing and starts behind what was read: here all of that was written already."
    if doubled:
        aborted = _aborted(course.end) if not on.read_committed else 0
        too = f", {_count(aborted)} of them aborted, which this reader sees too" if aborted else ""
        return f"The restart remembers nothing and starts at record 0: {_count(doubled)} can be seen twice{too}."
    return "The restart remembers nothing and starts at record 0: nothing was visible yet that could be doubled."


def _refused(course: Course) -> str:
    missing = judge(course.stage.visible(course.end)).missing
    rest = f" {_count(missing)} wait until somebody decides." if missing else ""
    return (
        "The checkpoint is gone, and the marker belongs to the query that had it: the new query refuses to publish, "
        f"since it would publish everything again.{rest}"
    )


def _why_not_lost(course: Course) -> str:
    if not course.is_disturbed:
        return "No write to Kafka waited for an acknowledgement here, so none could be lost."
    event = course.after[0].event
    if event.request != "row":
        return f"The {event.request} came twice, and the second one changed nothing."
    if event.answer == "known already":
        return f"Record {event.row} came twice with one sequence number: Kafka knew it, and wrote it once."
    return f"Record {event.row} came twice, and without sequence numbers Kafka takes the second for another record."


def _count(records: int) -> str:
    return f"{records} record{'s' if records > 1 else ''}"
