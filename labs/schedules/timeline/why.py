"""Why a course of events ends as it does, in one sentence: read off what the model did, case by case."""

from __future__ import annotations

from labs.schedules.timeline.course import CRASH, Course
from labs.schedules.timeline.switches import Switches
from labs.schedules.timeline.verdict import judge, seen_by_reader


def explanation(course: Course, switches: Switches) -> str:
    """Return the sentence for a reader with these switches."""
    on = switches.effective
    if course.fault != CRASH:
        return _why_not_lost(course)
    doubled = judge(seen_by_reader(course.end, on.read_committed)).doubled
    if course.end.refused:
        return _refused(course)
    if not on.checkpoint:
        return _without_checkpoint(course, on, doubled)
    batch = course.end_of_first + 1  # the batch in flight
    if _aborted(course) and not on.read_committed:
        return (
            f"Kafka aborted the transaction that the crash left open, and an abort deletes nothing: this reader does "
            f"not ask for committed records only, and sees the {_aborted(course)} aborted ones as well."
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
        return "No batch was in flight: what is in offsets/ is in commits/ too, and the restart goes on with the next."
    if course.finds_its_marker:
        together = "in one transaction with them" if on.transaction else "right behind them"
        return (
            f"The rows of batch {batch} were there, and the marker, written {together}, said so: the restart found "
            "it, and wrote nothing."
        )
    if _aborted(course):
        return (
            f"The crash left a transaction open with {_count(_aborted(course))} in it; Kafka aborted it when the "
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
        aborted = _aborted(course) if not on.read_committed else 0
        too = f", {_count(aborted)} of them aborted, which this reader sees too" if aborted else ""
        return f"The restart remembers nothing and starts at record 0: {_count(doubled)} can be seen twice{too}."
    return "The restart remembers nothing and starts at record 0: nothing was visible yet that could be doubled."


def _refused(course: Course) -> str:
    missing = judge(course.stage.visible(course.end)).missing
    rest = f" {_count(missing)} wait until somebody decides." if missing else ""
    return (
        "The checkpoint is gone, and the marker belongs to the query that had it: the new query refuses to publish "
        f"anything, rather than all of it again.{rest}"
    )


def _why_not_lost(course: Course) -> str:
    if not course.is_disturbed:
        return "Nothing was under way to Kafka here whose acknowledgement could be lost."
    event = course.after[0].event
    if event.request != "row":
        return f"The {event.request} came twice, and said the second time what was so already: that changes nothing."
    if event.answer == "known already":
        return f"Record {event.row} came twice with one sequence number: Kafka knew it, and wrote it once."
    return f"Record {event.row} came twice, and without sequence numbers Kafka takes the second for another record."


def _aborted(course: Course) -> int:
    return sum(status == "aborted" for _, _, status in course.end.log)


def _count(records: int) -> str:
    return f"{records} record{'s' if records > 1 else ''}"
