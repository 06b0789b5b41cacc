"""What a student's function is handed: thin wrappers around the real clients, which pass the crash points.

`ExerciseConsumer` is confluent_kafka's Consumer of one partition, `ExerciseDatabase` is a sqlite3 connection,
`handler` is a piece of work in the outside world that cannot be undone. Their other methods are the real ones.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from labs.exercises.checker.crash_points import CrashPoints, Watched

PATIENCE = 10  # seconds for one answer of Kafka
ENDS_IGNORED = 100


class EndIgnored(RuntimeError):
    """The code polls on at the end of the topic."""


class ExerciseConsumer(Watched):
    """A consumer of partition 0 of a topic, which starts where its group committed last, or at the beginning."""

    __slots__ = ("_assigned", "_at", "_ends")

    def __init__(self, points: CrashPoints, bootstrap_servers: str, topic: str, group: str):
        settings = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
        super().__init__("consumer", Consumer(settings), points, ())
        self._at, self._assigned, self._ends = (topic, 0), False, 0

    def poll(self, timeout: float | None = None) -> Message | None:
        """Return the next record, or None when the topic is read to its end. Raises EndIgnored."""
        if not self._assigned:
            self._assign(TopicPartition(*self._at))
        message = self._points.call("consumer.poll", self._next, "consumer.poll()", lambda m: f"record {m.offset()}")
        self._ends = 0 if message else self._ends + 1
        if self._ends > ENDS_IGNORED:
            raise EndIgnored("poll() has returned None 100 times: the topic is read to its end, so return from there")
        return message

    def commit(self, message: Message | None = None, offsets: list[TopicPartition] | None = None, **_: Any) -> None:
        """Tell Kafka that everything polled so far is done (or: up to `message`, or `offsets`), and wait for it."""
        to = {"message": message} if message is not None else {"offsets": offsets} if offsets else {}
        upto = f"record {message.offset()}" if message is not None else ""

        def commit() -> None:
            try:
                self._real.commit(**to, asynchronous=False)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._NO_OFFSET:  # nothing new was polled
                    raise

        self._points.call("consumer.commit", commit, f"consumer.commit({upto})")

    def seek(self, offset: int | TopicPartition) -> None:
        """Make the record at `offset` the next one that `poll` returns."""
        offset = offset.offset if isinstance(offset, TopicPartition) else int(offset)
        seek = lambda: self._assign(TopicPartition(*self._at, offset))  # noqa: E731
        self._points.call("consumer.seek", seek, f"consumer.seek({offset})")

    def _assign(self, partition: TopicPartition) -> None:
        self._real.assign([partition])
        self._assigned = True

    def _next(self) -> Message | None:
        message = self._real.poll(0.05 if self._ends else PATIENCE)
        if message is None and not self._ends:
            raise TimeoutError(f"no record and no end of {self._at[0]} within {PATIENCE} s: is the broker alive?")
        if message is None or (message.error() and message.error().code() == KafkaError._PARTITION_EOF):
            return None
        if message.error():
            raise KafkaException(message.error())
        return message


class ExerciseDatabase(Watched):
    """A sqlite3 connection. `with database:` commits at the end of the block, or rolls back if it raised."""

    __slots__ = ()

    def __init__(self, points: CrashPoints, path: str):
        connection = sqlite3.connect(path)
        super().__init__("database", connection, points, ("execute", "executemany", "commit", "rollback"))

    def _describe(self, result: Any) -> str:
        """Say how many rows a statement changed: an UPDATE that finds none raises nothing."""
        rows = getattr(result, "rowcount", -1)
        return "" if rows < 0 else "1 row" if rows == 1 else f"{rows} rows"

    def __enter__(self) -> ExerciseDatabase:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        (self.rollback if kind else self.commit)()


def exercise_producer(points: CrashPoints, bootstrap_servers: str, transactional_id: str) -> Watched:
    """Return a watched transactional Producer of confluent_kafka."""
    settings = {
        "bootstrap.servers": bootstrap_servers,
        "transactional.id": transactional_id,
        "transaction.timeout.ms": 60_000,
        "linger.ms": 0,
        "enable.sparse.connections": False,  # the coordinator is connected to before it is needed
        "log_level": 0,
        "error_cb": lambda error: None,
    }
    watched = (
        "init_transactions",
        "begin_transaction",
        "produce",
        "flush",
        "send_offsets_to_transaction",
        "commit_transaction",
        "abort_transaction",
    )
    return Watched("producer", Producer(settings), points, watched)


def handler(points: CrashPoints, path: str) -> Callable[[Message], None]:
    """Return `handle(message)`: it has an effect outside of Kafka, at once, that nobody can undo."""
    outside = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def handle(message: Message) -> None:
        if not isinstance(message, Message):
            raise TypeError(f"handle takes one record, as poll() returned it, and not {type(message).__name__}")
        value = cast(bytes, message.value()).decode()
        record = json.dumps({"offset": message.offset(), "value": value}).encode() + b"\n"
        points.call("handle", lambda: os.write(outside, record) and None, f"handle(record {message.offset()})")

    return handle
