"""The log of a topic as it grows: each record with its transaction, and whether a read_committed reader sees it.

A record is readable once its transaction is committed and no transaction before it is open, as Kafka's last stable
offset says. Only the newest entries, and the records that are not decided yet, are kept.

The tail reads raw record batches, also those of open and aborted transactions. It sends its requests to the leader's
own port, not through the proxy, so that the room still sees the log when the pipeline is cut off. Limitations: one
partition, and brokers on this machine. A broker that does not answer raises OSError, and the next read continues where
the last response ended.
"""

from __future__ import annotations

import contextlib
import json
import struct
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from kafka.errors import NotLeaderForPartitionError, UnknownTopicOrPartitionError, for_code
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecord, DefaultRecordBatch

from labs.pipeline.records import parse_result_value
from labs.pipeline.two_phase.end_transaction import BrokerConnection
from labs.room.state import ENTRIES_SHOWN, LONGEST_BURST

FETCH_VERSION, METADATA_VERSION = 11, 8  # the last versions that name topics, not topic ids, and use no varints
AT_MOST = 1 << 20  # bytes in one response
PATIENCE = 0.5  # seconds for a response


@dataclass
class News:
    """One response: new record batches in order, the high watermark (`end`) and the last stable offset.

    `complete` is True at the log's end.
    """

    end: int
    stable: int
    record_batches: list[DefaultRecordBatch] = field(default_factory=list)
    complete: bool = True


class PartitionTail:
    """Reads partition 0 of a topic from its beginning; `ports()` returns the nodes' ports, by their numbers."""

    def __init__(self, topic: str, ports: Callable[[], Sequence[int]]):
        self.topic, self.position = topic, 0
        self._ports = ports
        self._connection: BrokerConnection | None = None

    def read(self) -> News | None:
        """Return the next record batches, or None if the topic does not exist yet. Raises OSError."""
        try:
            return self._fetch()
        except UnknownTopicOrPartitionError:
            return None
        except OSError:
            self.close()
            raise
        except NotLeaderForPartitionError as error:
            self.close()
            raise ConnectionError(f"another broker leads {self.topic} by now") from error

    def close(self) -> None:
        """Close the connection."""
        if self._connection:
            with contextlib.suppress(OSError):
                self._connection.close()
            self._connection = None

    def _fetch(self) -> News | None:
        self._connection = self._connection or self._leader()
        answer = self._connection.ask(self._request(), FetchResponse, FETCH_VERSION)
        [partition] = answer.responses[0].partitions
        if partition.error_code:
            raise for_code(partition.error_code)(self.topic)
        news = News(partition.high_watermark, partition.last_stable_offset)
        for record_batch in MemoryRecords(bytes(partition.records or b"")):
            if record_batch.last_offset >= self.position:
                news.record_batches.append(record_batch)
                self.position = record_batch.last_offset + 1
        news.complete = self.position >= news.end
        return news

    def _request(self) -> FetchRequest:
        topic = FetchRequest.FetchTopic
        wanted = topic.FetchPartition(
            partition=0,
            current_leader_epoch=-1,
            fetch_offset=self.position,
            log_start_offset=-1,
            partition_max_bytes=AT_MOST,
        )
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=AT_MOST,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[topic(topic=self.topic, partitions=[wanted])],
            forgotten_topics_data=[],
            rack_id="",
        )

    def _leader(self) -> BrokerConnection:
        ports = self._ports()
        if len(ports) == 1:
            return BrokerConnection(f"127.0.0.1:{ports[0]}", PATIENCE)
        last: OSError = ConnectionError("no broker answers")
        for port in ports:
            try:
                with BrokerConnection(f"127.0.0.1:{port}", PATIENCE) as broker:
                    return self._connect(broker, ports)
            except OSError as error:
                last = error
        raise last

    def _connect(self, broker: BrokerConnection, ports: Sequence[int]) -> BrokerConnection:
        asked = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=self.topic)],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        [topic] = broker.ask(asked, MetadataResponse, METADATA_VERSION).topics
        if topic.error_code:
            raise for_code(topic.error_code)(self.topic)
        leader = topic.partitions[0].leader_id
        if leader < 0:
            raise ConnectionError(f"{self.topic} has no leader")
        return BrokerConnection(f"127.0.0.1:{ports[leader]}", PATIENCE)


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
        window = None if self.window is None else clock(self.window)
        names = ("offset", "kind", "state", "producer", "epoch", "batch", "ip", "count", "copy")
        return {**{name: getattr(self, name) for name in names}, "window": window}


def clock(window: int) -> str:
    """Return the time of day at which a window begins, as in 12:00:05."""
    return f"{datetime.fromtimestamp(window / 1000, UTC):%H:%M:%S}"


class Ended(NamedTuple):
    """A transaction that has ended: `state` is committed or aborted; `number` counts transactions from 1."""

    number: int
    batch: int | None
    epoch: int
    state: str


class SinkLog:
    """The log that `tail` reads. `fields(record)` returns fields of a `Row`; ValueError means: another kind."""

    def __init__(self, tail: PartitionTail, fields: Callable[[DefaultRecord], dict[str, Any]]):
        self.end = self.stable = self.rows = self.readable = 0
        self.current = True  # whether the last read reached the end of the log
        self.entries: deque[Row] = deque(maxlen=LONGEST_BURST)
        self.ended: deque[Ended] = deque(maxlen=REMEMBERED)
        self.copies: Counter[int | None] = Counter()  # batch -> its readable copies
        self.undecided: deque[Row] = deque()  # in the order of the log; the first one is open
        self._tail, self._fields = tail, fields
        self._changed_from = 0  # the lowest offset of which something is new since `shown`

    @property
    def last_ended(self) -> int:
        """The number of the transaction that ended last, or 0."""
        return self.ended[-1].number if self.ended else 0

    def read(self, seen: Callable[[Row], bool] = lambda row: False) -> list[Row]:
        """Read new records, and return the rows that have become readable, in order. Raises OSError.

        `seen(row)` tells whether a row with the same result is readable already.
        """
        self.current = False
        news = self._tail.read()
        if news is None:
            self.current = True
            return []
        for record_batch in news.record_batches:
            self._take(record_batch, seen)
        self.end, self.stable, self.current = news.end, news.stable, news.complete
        return self._readable()

    def shown(self) -> dict[str, Any]:
        """Return `log` of the room's state: the last entries, and those that are new or changed since the last call."""
        first = min(self.end - ENTRIES_SHOWN, self._changed_from)
        self._changed_from = self.end
        entries = [row.shown() for row in self.entries if row.offset >= first]
        return {"end": self.end, "stable": self.stable, "entries": entries}

    def count_copy(self, row: Row) -> None:
        """Mark a readable row as a copy."""
        row.copy = True
        self.copies[row.batch] += 1

    def close(self) -> None:
        self._tail.close()

    def _take(self, record_batch: DefaultRecordBatch, seen: Callable[[Row], bool]) -> None:
        who = (record_batch.producer_id, record_batch.producer_epoch)
        for record in record_batch:
            if record_batch.is_control_batch:
                commits = struct.unpack_from(">hh", record.key)[1] == 1
                self._end_transaction(record_batch.producer_id, "committed" if commits else "aborted")
                kind = "commit" if commits else "abort"
                self.entries.append(Row(record.offset, kind, "committed" if commits else "aborted", *who))
                continue
            row = Row(record.offset, "row", "open" if record_batch.is_transactional else "plain", *who)
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
            self._changed_from = min(self._changed_from, row.offset)
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
        raise ValueError("the record is not a marker") from error
