"""Just enough of Kafka's wire format to tell requests apart and to say who sent them.

Every message is four bytes of length and that many of content. A request begins with its kind (api key), the
version of that kind, a correlation id that the response repeats, and the client's id. The rest is passed on
unread, except a transactional id that comes first. Where it stops: plain text only, neither TLS nor SASL.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum

from kafka.errors import for_code

LENGTH = 4  # bytes in front of each message


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
    """Who asks for what. Every request is answered, except a produce request with acks=0."""

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
        """Kafka's error code (0 is success), of a produce request its first partition's; None of other kinds."""
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
        """The error by kafka-python's name for it, such as InvalidTxnStateError; None for success."""
        return for_code(self.error_code).__name__ if self.error_code else None


def read_request(frame: bytes) -> RequestHeader:
    """Read the header of a request, whose length comes first. Raises ValueError for what is not a request."""
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
        raise ValueError(f"no Kafka request in plain text: {frame[:40]!r}") from error


def _begins_with_transactional_id(kind: Request, version: int) -> bool:
    if kind is Request.PRODUCE:
        return version >= 3
    if kind is Request.ADD_PARTITIONS_TO_TXN:
        return version < 4  # later ones are sent between brokers, for many transactions at once
    return kind in TRANSACTIONAL


def correlation_id(response: bytes) -> int:
    """Return which request a response answers."""
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
