"""Reads messages to and from Kafka: the kind of a request, and what it says about transactions.

Every message is four bytes of length and that many of content. A request begins with its kind (api key), the
version of that kind, a correlation id that the response repeats, and the client's id. The proxy does not read the rest,
except a transactional id that comes first. Limitations: plain text only, neither TLS nor SASL.

A fault needs only a message's header. A watcher of the proxy reads whole messages, with kafka-python: the records of a
producer's epoch, the end of its transaction, a new epoch. Limitations: these functions raise ValueError for a damaged
message, and for a version that kafka-python does not know; for produce requests from version 13 on, which name topics
only by ids; and for records that are compressed with a codec whose library is not installed. librdkafka sends produce
requests of version 10 at most, and compresses nothing by default.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from kafka.errors import for_code
from kafka.protocol.producer.produce import ProduceRequest, ProduceResponse
from kafka.protocol.producer.transaction import EndTxnRequest, EndTxnResponse, InitProducerIdResponse
from kafka.record.memory_records import MemoryRecords

from labs.pipeline.two_phase.end_transaction import LENGTH


class Request(Enum):
    """The kinds of request that clients send, with Kafka's api keys."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27  # sent by the broker to itself, over its advertised address
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    OTHER = -1

    @classmethod
    def _missing_(cls, value: object) -> Request:
        return cls.OTHER

    def __str__(self) -> str:
        return self.name


# Requests whose first field is the transactional id -> their first "flexible" version, which writes lengths as
# varints and has tagged fields.
TRANSACTIONAL = {
    Request.PRODUCE: 9,
    Request.INIT_PRODUCER_ID: 2,
    Request.ADD_PARTITIONS_TO_TXN: 3,
    Request.ADD_OFFSETS_TO_TXN: 3,
    Request.END_TXN: 3,
    Request.TXN_OFFSET_COMMIT: 3,
}
TOPIC_IDS = 13  # from this version on, a produce request and its answer name topics by their ids
# Requests whose response is the throttle time, the error code, and more.
ERROR_CODE_FIRST = (Request.INIT_PRODUCER_ID, Request.ADD_OFFSETS_TO_TXN, Request.END_TXN)


@dataclass(frozen=True)
class RequestHeader:
    """The header of a request. Kafka answers every request, except a produce request with acks=0."""

    kind: Request
    version: int
    correlation_id: int
    client_id: str | None = None
    transactional_id: str | None = None
    answered: bool = True


@dataclass(frozen=True)
class Answer:
    """The broker's answer to one request. `frame` is all of it, length included."""

    request: RequestHeader
    frame: bytes

    @property
    def error_code(self) -> int | None:
        """Kafka's error code (0 is success); for a produce request, that of its first partition.

        None for other kinds than PRODUCE and ERROR_CODE_FIRST, and for produce requests older than version 9 or from
        version 13 on.
        """
        fields = _Fields(self.frame, at=LENGTH + 4)
        if self.request.kind is Request.PRODUCE:
            return self._of_the_first_partition(fields)
        if self.request.kind not in ERROR_CODE_FIRST:
            return None
        if self.request.version >= TRANSACTIONAL[self.request.kind]:
            fields.skip_tagged_fields()
        fields.int32()  # throttle time
        return fields.int16()

    def _of_the_first_partition(self, fields: _Fields) -> int | None:
        if not TRANSACTIONAL[Request.PRODUCE] <= self.request.version < TOPIC_IDS:
            return None
        fields.skip_tagged_fields()
        fields.varint()  # how many topics
        fields.compact_text()
        fields.varint()  # how many partitions
        fields.int32()  # which one
        return fields.int16()

    @property
    def error(self) -> str | None:
        """kafka-python's name of the error, such as InvalidTxnStateError; None for success."""
        return for_code(self.error_code).__name__ if self.error_code else None


def read_request(frame: bytes) -> RequestHeader:
    """Read the header of a request, which begins with its length. Raises ValueError if it is not a request."""
    try:
        fields = _Fields(frame, at=LENGTH)
        kind, version = Request(fields.int16()), fields.int16()
        who = (fields.int32(), fields.text())
        if not _begins_with_transactional_id(kind, version):
            return RequestHeader(kind, version, *who)
        if version >= TRANSACTIONAL[kind]:
            fields.skip_tagged_fields()
            transactional_id = fields.compact_text()
        else:
            transactional_id = fields.text()
        acks = fields.int16() if kind is Request.PRODUCE else None
        return RequestHeader(kind, version, *who, transactional_id, answered=acks != 0)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"this is not a Kafka request in plain text: {frame[:40]!r}") from error


def _begins_with_transactional_id(kind: Request, version: int) -> bool:
    if kind is Request.PRODUCE:
        return version >= 3
    if kind is Request.ADD_PARTITIONS_TO_TXN:
        return version < 4  # later ones are sent between brokers, for many transactions at once
    return kind in TRANSACTIONAL


def correlation_id(response: bytes) -> int:
    """Return the correlation id of a response, which is that of its request."""
    return _Fields(response, at=LENGTH).int32()


class _Fields:
    """Kafka's primitive types, read one after the other."""

    def __init__(self, data: bytes, at: int):
        self._data, self._at = data, at

    def int16(self) -> int:
        return self._number(">h", 2)

    def int32(self) -> int:
        return self._number(">i", 4)

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._number("B", 1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def text(self) -> str | None:
        return self._text(self.int16())

    def compact_text(self) -> str | None:
        return self._text(self.varint() - 1)

    def skip_tagged_fields(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self._at += self.varint()

    def _number(self, form: str, size: int) -> int:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += size
        return value

    def _text(self, size: int) -> str | None:
        if size < 0:
            return None
        text = self._data[self._at : self._at + size]
        if len(text) < size:
            raise IndexError("it ends in the middle of a text")
        self._at += size
        return text.decode()


FENCED = "fenced"  # stands for the two errors of a producer that was fenced by a newer one of its transactional id
NEWER_PRODUCER = ("InvalidProducerEpochError", "ProducerFencedError")
ENDING = "ConcurrentTransactionsError"  # Kafka is still ending a transaction of this transactional id
# After these errors a client repeats its request, and does not report them.
RETRIED = (
    *(ENDING, "CoordinatorLoadInProgressError", "CoordinatorNotAvailableError"),
    *("NotCoordinatorError", "NotLeaderForPartitionError", "LeaderNotAvailableError", "UnknownTopicOrPartitionError"),
)


class Record(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes | None]


class Batch(NamedTuple):
    """Records for one partition, as a producer sends them. A producer that has no id or epoch says -1."""

    topic: str
    partition: int
    transactional: bool
    producer_id: int
    epoch: int
    base_sequence: int
    records: tuple[Record, ...]


class Written(NamedTuple):
    """Kafka's answer to one batch. A repeated batch gets the offset of the first time; `said` is from `said()`."""

    topic: str
    partition: int
    offset: int
    said: str


class End(NamedTuple):
    """A request to end the open transaction of a producer."""

    producer_id: int
    epoch: int
    committed: bool


class Granted(NamedTuple):
    """Kafka's answer to a request for an epoch (InitProducerId); id and epoch are -1 unless `said` is "ok"."""

    producer_id: int
    epoch: int
    said: str


def read_batches(request: RequestHeader, frame: bytes) -> list[Batch]:
    """Read the batches of a produce request, in their order. Raises ValueError."""
    with _named(request):
        _check_names(request)
        batches = []
        for topic in _decoded(ProduceRequest, request, frame).topic_data:
            for partition in topic.partition_data:
                for batch in _whole(bytes(partition.records or b"")):
                    records = tuple(Record(each.key, each.value, dict(each.headers)) for each in batch)
                    numbers = batch.producer_id, batch.producer_epoch, batch.base_sequence
                    batches.append(Batch(topic.name, partition.index, batch.is_transactional, *numbers, records))
        return batches


def read_written(request: RequestHeader, frame: bytes) -> list[Written]:
    """Read the answer to a produce request. Raises ValueError."""
    with _named(request):
        _check_names(request)
        return [
            Written(topic.name, each.index, each.base_offset, said(each.error_code))
            for topic in _decoded(ProduceResponse, request, frame).responses
            for each in topic.partition_responses
        ]


def _check_names(request: RequestHeader) -> None:
    if request.version >= TOPIC_IDS:
        raise ValueError("it names topics only by their ids")


def read_end(request: RequestHeader, frame: bytes) -> End:
    """Read a request to end a transaction. Raises ValueError."""
    with _named(request):
        asked = _decoded(EndTxnRequest, request, frame)
        return End(asked.producer_id, asked.producer_epoch, asked.committed)


def read_ended(request: RequestHeader, frame: bytes) -> str:
    """Read Kafka's answer to a request to end a transaction. Raises ValueError."""
    with _named(request):
        return said(_decoded(EndTxnResponse, request, frame).error_code)


def read_granted(request: RequestHeader, frame: bytes) -> Granted:
    """Read the answer to a request for an epoch. Raises ValueError."""
    with _named(request):
        answer = _decoded(InitProducerIdResponse, request, frame)
        return Granted(answer.producer_id, answer.producer_epoch, said(answer.error_code))


def said(error_code: int) -> str:
    """Return Kafka's answer in a word: "ok", "fenced", or kafka-python's name of the error."""
    name = for_code(error_code).__name__ if error_code else "ok"
    return FENCED if name in NEWER_PRODUCER else name


def _decoded(kind: Any, request: RequestHeader, frame: bytes) -> Any:
    return kind.decode(frame, version=request.version, header=True, framed=True)


def _whole(records: bytes) -> MemoryRecords:
    batches = MemoryRecords(records)
    if batches.valid_bytes() != len(records):
        raise ValueError("its records end in the middle of a batch")
    return batches


@contextmanager
def _named(request: RequestHeader) -> Iterator[None]:
    """Turn any error in the block into a ValueError that names the message."""
    try:
        yield
    except Exception as error:
        who = f"{request.kind}, version {request.version}, of {request.client_id or 'a client without a name'}"
        raise ValueError(f"{who} cannot be read: {str(error) or repr(error)}") from error
