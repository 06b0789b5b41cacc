"""The log of a topic as it grows: each record with its transaction, and what of it a read_committed reader sees.

A record counts as readable once its transaction is committed and none before it is open, which is what Kafka's last
stable offset says. Of what was, only the newest entries and what is undecided are kept.
"""

from __future__ import annotations

import contextlib
import json
import struct
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from kafka.record.default_records import DefaultRecord, DefaultRecordBatch

from labs.pipeline.records import parse_result_value
from labs.room.partition_tail import PartitionTail
from labs.room.state import ENTRIES

REMEMBERED = 200  # transactions, and batches with copies


@dataclass(slots=True)
class Row:
    """A record of the log; `state` is plain, open, committed or aborted. `rows`: how many its attempt wrote in all."""

    offset: int
    kind: str
    state: str
    producer: int
    epoch: int
    batch: int | None = None
    attempt: str | None = None
    rows: int | None = None
    window: int | None = None
    ip: str | None = None
    count: int | None = None
    copy: bool = False

    def shown(self) -> dict[str, Any]:
        """Return the entry of the room's state."""
        window = None if self.window is None else f"{datetime.fromtimestamp(self.window / 1000, UTC):%H:%M:%S}"
        names = ("offset", "kind", "state", "producer", "epoch", "batch", "ip", "count", "copy")
        return {**{name: getattr(self, name) for name in names}, "window": window}


class Ended(NamedTuple):
    """A transaction that has ended: `state` is committed or aborted, `number` counts them."""

    number: int
    batch: int | None
    epoch: int
    state: str


class SinkLog:
    """Follows `tail`; `fields` reads a record's own fields, and raises ValueError for what is not of its kind."""

    def __init__(self, tail: PartitionTail, fields: Callable[[DefaultRecord], dict[str, Any]]):
        self.end = self.stable = self.rows = self.readable = 0
        self.current = True  # whether all that there was at the last look has been read
        self.entries: deque[Row] = deque(maxlen=ENTRIES)
        self.ended: deque[Ended] = deque(maxlen=REMEMBERED)
        self.copies: Counter[int | None] = Counter()  # readable ones, by batch
        self.undecided: deque[Row] = deque()  # in the order of the log; the first one is open
        self._tail, self._fields = tail, fields

    @property
    def last_ended(self) -> int:
        """The number of the transaction that has ended last, 0 if none has."""
        return self.ended[-1].number if self.ended else 0

    def read(self, seen: Callable[[Row], bool] = lambda row: False) -> list[Row]:
        """Read what is new and return what has become readable, in its order. Raises OSError.

        `seen` tells whether a row says what another one did that is readable.
        """
        self.current = False
        news = self._tail.read()
        if news is None:
            self.current = True
            return []
        for batch in news.batches:
            self._take(batch, seen)
        self.end, self.stable, self.current = news.end, news.stable, news.complete
        return self._readable()

    def count_copy(self, row: Row) -> None:
        """Note that a readable row is a copy."""
        row.copy = True
        self.copies[row.batch] += 1

    def close(self) -> None:
        self._tail.close()

    def _take(self, batch: DefaultRecordBatch, seen: Callable[[Row], bool]) -> None:
        who = (batch.producer_id, batch.producer_epoch)
        for record in batch:
            if batch.is_control_batch:
                commits = struct.unpack_from(">hh", record.key)[1] == 1
                self._end_transaction(batch.producer_id, "committed" if commits else "aborted")
                kind = "commit" if commits else "abort"
                self.entries.append(Row(record.offset, kind, "committed" if commits else "aborted", *who))
                continue
            row = Row(record.offset, "row", "open" if batch.is_transactional else "plain", *who)
            try:
                for name, value in self._fields(record).items():
                    setattr(row, name, value)
            except ValueError:
                row.kind = "other"
            row.copy = row.kind == "row" and seen(row)
            self.rows += row.kind == "row"
            self.entries.append(row)
            self.undecided.append(row)

    def _end_transaction(self, producer: int, state: str) -> None:
        ended = [row for row in self.undecided if row.producer == producer and row.state == "open"]
        for row in ended:
            row.state = state
        if ended:
            self.ended.append(Ended(self.last_ended + 1, ended[0].batch, ended[0].epoch, state))

    def _readable(self) -> list[Row]:
        found = []
        while self.undecided and self.undecided[0].state != "open":
            row = self.undecided.popleft()
            if row.kind == "row" and row.state != "aborted":
                found.append(row)
        self.readable += len(found)
        return found


def result_fields(record: DefaultRecord) -> dict[str, Any]:
    """Read a result with its headers. Raises ValueError for any other record, such as a sentinel."""
    window, ip, count = parse_result_value(record.value)
    headers = {name: (value or b"").decode() for name, value in record.headers}
    fields: dict[str, Any] = {"window": window, "ip": ip, "count": count, "attempt": headers.get("attempt")}
    for name, header in (("batch", "batch_id"), ("rows", "batch_rows")):
        with contextlib.suppress(KeyError):
            fields[name] = int(headers[header])
    return fields


def marker_fields(record: DefaultRecord) -> dict[str, Any]:
    """Read a marker of the exactly-once sink. Raises ValueError for any other record."""
    try:
        return {"batch": int(json.loads(record.value)["batch_id"])}
    except (KeyError, TypeError) as error:
        raise ValueError("no marker") from error
