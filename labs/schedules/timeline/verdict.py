"""What a reader sees of a topic, and what is wrong with it."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from labs.schedules.model.state import State
from labs.schedules.timeline.switches import BATCHES, ROWS


def seen_by_reader(state: State, read_committed: bool) -> tuple[int, ...]:
    """Return the records that a reader sees, in the order of the topic."""
    return tuple(record for record, _, status in state.log if status == "committed" or not read_committed)


class Verdict(NamedTuple):
    """How many different records are seen, how often one is seen again, how many are not there, how many halves."""

    records: int
    doubled: int
    missing: int
    torn: int

    def is_wrong(self, at_the_end: bool) -> bool:
        """Tell whether a reader must not see this; records that are not there may still come, before the end."""
        return bool(self.doubled or self.torn or (at_the_end and self.missing))

    def words(self, at_the_end: bool) -> str:
        """Say it. Before the end a record that is not there is not lost."""
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
