"""What a read_committed reader sees, put together from Kafka's answers: nobody is asked, and nothing waits.

Records stand where Kafka said that it wrote them, by partition and offset, and none is seen behind an open transaction
of its partition. Where it stops: a transaction has ended once Kafka said so to who asked for the end, or for the next
epoch; the moment in which readers notice comes shortly afterwards. What ended unasked, by a timeout, has to be told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"


class Place(NamedTuple):
    partition: int
    offset: int


class Transaction(NamedTuple):
    producer_id: int
    epoch: int


class ReaderView:
    """The results topic, as far as it is known what was written and how it ended."""

    def __init__(self) -> None:
        self._records: dict[Place, tuple[int, Transaction | None]] = {}
        self._fates: dict[Place, str] = {}

    def wrote(self, first: Place, records: tuple[int, ...], transaction: Transaction | None) -> None:
        """Note records that were taken, or known already, as of a transaction or of none."""
        for offset, record in enumerate(records, first.offset):
            place = Place(first.partition, offset)
            self._records.setdefault(place, (record, transaction))
            self._fates.setdefault(place, OPEN if transaction else COMMITTED)

    def has(self, place: Place) -> bool:
        """Tell whether a record was written there."""
        return place in self._records

    def ended(self, transaction: Transaction, committed: bool) -> None:
        """End what this producer has open in this epoch."""
        self._end(COMMITTED if committed else ABORTED, lambda each: each == transaction)

    def granted(self, epoch: Transaction) -> None:
        """Abort what older epochs of the producer have open, as Kafka does before it grants another."""
        self._end(ABORTED, lambda each: each.producer_id == epoch.producer_id and each.epoch < epoch.epoch)

    def timed_out(self) -> None:
        """Abort all that is open."""
        self._end(ABORTED, lambda each: True)

    def visible(self) -> tuple[int, ...]:
        """Return the records that a reader sees, by partition and offset."""
        seen, hidden = [], set()
        for place in sorted(self._records):
            if self._fates[place] == OPEN:
                hidden.add(place.partition)
            elif self._fates[place] == COMMITTED and place.partition not in hidden:
                seen.append(self._records[place][0])
        return tuple(seen)

    def _end(self, fate: str, concerned: Callable[[Transaction], bool]) -> None:
        for place, (_, transaction) in self._records.items():
            if self._fates[place] == OPEN and transaction and concerned(transaction):
                self._fates[place] = fate
