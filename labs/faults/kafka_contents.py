"""What a message to or from Kafka says of transactions: the records of a producer's epoch, their end, a new epoch.

A fault needs a message's header only, which `kafka_framing` reads itself. This here reads whole messages, for whoever
watches the proxy, and leaves that to kafka-python. Where it stops: each function raises ValueError for a message that
is damaged or of a version that kafka-python does not know; produce requests from version 13 on name topics by ids,
which say nothing; and records may be compressed by a codec for which no library is installed. librdkafka sends
version 10 at most, and compresses nothing unless told to.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from kafka.errors import for_code
from kafka.protocol.producer.produce import ProduceRequest, ProduceResponse
from kafka.protocol.producer.transaction import EndTxnRequest, EndTxnResponse, InitProducerIdResponse
from kafka.record.memory_records import MemoryRecords

from labs.faults.kafka_framing import TOPIC_IDS, RequestHeader

FENCED = "fenced"  # what is said of the two errors of a producer whose name a younger one has
NEWER_PRODUCER = ("InvalidProducerEpochError", "ProducerFencedError")
ENDING = "ConcurrentTransactionsError"  # a transaction of the name is being ended
# After these a client repeats its request, and shows nobody that it has.
COME_AGAIN = (
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
    """Kafka's answer to one batch: the offset of its first record, which a repeated batch is told again; and `said`."""

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
    """Kafka's answer to who asks for an epoch; both are -1 where `said` is not "ok"."""

    producer_id: int
    epoch: int
    said: str


def read_batches(request: RequestHeader, frame: bytes) -> list[Batch]:
    """Read what a produce request carries, in its order. Raises ValueError."""
    with _named(request):
        if request.version >= TOPIC_IDS:
            raise ValueError("it names topics by their ids only")
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
        return [
            Written(topic.name, each.index, each.base_offset, said(each.error_code))
            for topic in _decoded(ProduceResponse, request, frame).responses
            for each in topic.partition_responses
        ]


def read_end(request: RequestHeader, frame: bytes) -> End:
    """Read a request to end a transaction. Raises ValueError."""
    with _named(request):
        asked = _decoded(EndTxnRequest, request, frame)
        return End(asked.producer_id, asked.producer_epoch, asked.committed)


def read_ended(request: RequestHeader, frame: bytes) -> str:
    """Read what Kafka said to a request to end a transaction. Raises ValueError."""
    with _named(request):
        return said(_decoded(EndTxnResponse, request, frame).error_code)


def read_granted(request: RequestHeader, frame: bytes) -> Granted:
    """Read the answer to a request for an epoch. Raises ValueError."""
    with _named(request):
        answer = _decoded(InitProducerIdResponse, request, frame)
        return Granted(answer.producer_id, answer.producer_epoch, said(answer.error_code))


def said(error_code: int) -> str:
    """Return Kafka's answer in a word: "ok", "fenced", or the error by kafka-python's name for it."""
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
    """Say which message it was, whatever a decoder of another's bytes may raise."""
    try:
        yield
    except Exception as error:
        who = f"{request.kind}, version {request.version}, of {request.client_id or 'a client without a name'}"
        raise ValueError(f"{who} cannot be read: {error or error!r}") from error
