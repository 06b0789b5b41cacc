"""The arguments of a student's function: thin wrappers around real clients, files and a log, with crash points.

`ExerciseConsumer` wraps confluent_kafka's Consumer of one partition, `ExerciseDatabase` a sqlite3 connection; methods
that are not wrapped are the real ones. `handler` is work in the outside world that cannot be undone.

`ExerciseFiles` are real files, with a crash point in the middle of each: readers see the part of a file that is already
written, and a rename is one step.

`PartitionFile` is a partition's log in a file, with producers that send to it. Guarantee: the log, and the answers that
the producers received, survive a SIGKILL. A producer that received no answer sends the record again, with the same
number. Limitations: one partition, one record at a time, no epochs.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from labs.exercises.checker.crash_points import CrashPoints, KafkaSilent, Watched

PATIENCE = 10  # seconds for one answer of Kafka
ENDS_IGNORED = 100


class EndIgnored(RuntimeError):
    """The code polls on at the end of the topic."""


class ExerciseConsumer(Watched):
    """A consumer of partition 0 of a topic, which starts where its group committed last, or at the beginning."""

    __slots__ = ("_at", "_ends")

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
        self._at, self._ends = (topic, 0), 0
        self._assign(TopicPartition(*self._at))  # at once, since consume() and position() are the real ones

    def poll(self, timeout: float | None = None) -> Message | None:
        """Return the next record, or None when the topic is read to its end. Raises EndIgnored."""
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

    def _next(self) -> Message | None:
        message = self._real.poll(0.05 if self._ends else PATIENCE)
        if message is None and not self._ends:
            raise KafkaSilent(f"no record and no end of {self._at[0]} within {PATIENCE} s: is the broker alive?")
        if message is None or (message.error() and message.error().code() == KafkaError._PARTITION_EOF):
            return None
        if message.error():
            raise KafkaException(message.error())
        return message


class ExerciseDatabase(Watched):
    """A sqlite3 connection. `with database:` commits at the end of the block, or rolls back if it raised."""

    __slots__ = ()

    def __init__(self, points: CrashPoints, path: str):
        connection, changes = sqlite3.connect(path), 0

        def traced(_: str) -> None:  # SQLite calls it before each statement, also of a cursor and of a script
            nonlocal changes
            if not connection.in_transaction and connection.total_changes > changes:
                changes = connection.total_changes
                points.reach("between transactions")

        connection.set_trace_callback(traced)
        watched = ("execute", "executemany", "executescript", "commit", "rollback")
        super().__init__("database", connection, points, watched)

    def __setattr__(self, name: str, value: object) -> None:
        if name in Watched.__slots__:
            super().__setattr__(name, value)
        else:  # such as row_factory
            setattr(self._real, name, value)

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
    """Return `handle(message)`: it has an immediate effect outside of Kafka, which cannot be undone."""
    outside = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def handle(message: Message) -> None:
        if not isinstance(message, Message):
            raise TypeError(f"handle takes one record, as poll() returned it, and not {type(message).__name__}")
        value = cast(bytes, message.value()).decode()
        record = json.dumps({"offset": message.offset(), "value": value}).encode() + b"\n"
        points.call("handle", lambda: os.write(outside, record) and None, f"handle(record {message.offset()})")

    return handle


class ExerciseFiles:
    """A directory. Names are relative to it, such as "batch-7.jsonl" or "manifest/7"."""

    def __init__(self, points: CrashPoints, directory: str | Path):
        self._points, self._directory = points, Path(directory)

    def write(self, name: str, lines: Iterable[str]) -> None:
        """Write the lines to a file, replacing its content. That takes time: a crash leaves only a part of them."""
        if isinstance(lines, str):
            raise TypeError(f"files.write takes a list of lines, and not the text {lines!r:.40}")
        file, lines = self._file(name), list(lines)
        text = "".join(f"{line}\n" for line in lines)

        def write() -> None:
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("w", encoding="utf-8") as content:
                content.write(text[: len(text) // 2])
                content.flush()
                self._points.journal.write("call", f"files.write({name}): half of it is written")
                self._points.reach("midway files.write")
                content.write(text[len(text) // 2 :])

        self._points.call("files.write", write, f"files.write({name}, {_number_of_lines(len(lines))})")

    def rename(self, old: str, new: str) -> None:
        """Rename a file in one step, replacing a file that has the new name. Raises FileNotFoundError."""
        source, target = self._file(old), self._file(new)
        target.parent.mkdir(parents=True, exist_ok=True)
        self._points.call("files.rename", lambda: os.replace(source, target), f"files.rename({old}, {new})")

    def exists(self, name: str) -> bool:
        """Tell whether there is a file of that name, complete or not."""
        file = self._file(name)
        return self._points.call("files.exists", file.is_file, f"files.exists({name})")

    def read(self, name: str) -> list[str]:
        """Return the lines of a file. Raises FileNotFoundError."""
        file = self._file(name)
        return self._points.call(
            "files.read", lambda: lines_of(file), f"files.read({name})", lambda lines: _number_of_lines(len(lines))
        )

    def names(self) -> list[str]:
        """Return the names of all files."""
        found = (file for file in self._directory.rglob("*") if file.is_file())
        return sorted(str(file.relative_to(self._directory)) for file in found)

    def _file(self, name: str) -> Path:
        file = (self._directory / name).resolve()
        if not file.is_relative_to(self._directory.resolve()) or file == self._directory.resolve():
            raise ValueError(f"{name!r} is no name in this directory")
        return file


def lines_of(file: Path) -> list[str]:
    """Return the lines of a file, including an incomplete last one."""
    return file.read_text(encoding="utf-8").splitlines()


def _number_of_lines(number: int) -> str:
    return "1 line" if number == 1 else f"{number} lines"


ROUNDS = 2  # of retries of unanswered records, before a producer gives up


class Record(NamedTuple):
    """What a producer sends: its id, the sequence number of the record (from 0), and a line of the log."""

    producer_id: int
    sequence: int
    value: str


class Stored(NamedTuple):
    """A record of the log, which has an offset."""

    offset: int
    producer_id: int
    sequence: int
    value: str


class Arrival(NamedTuple):
    """The record of that number arrives at the log; `heard` tells whether its producer gets the answer."""

    record: int
    heard: bool = True


class Answered(NamedTuple):
    """The answer to an arrival: an offset, or None for a refusal."""

    record: int
    heard: bool
    answer: Any


class PartitionFile:
    """The log that the student's function gets."""

    def __init__(self, points: CrashPoints, path: Path):
        self._points, self._path = points, path

    def records(self) -> list[Stored]:
        """Return what the log holds, by offset."""
        return [Stored(*fields) for fields in _lines(self._path)]

    def write(self, record: Record) -> int:
        """Write a record behind the last one, and return its offset."""
        offset = len(_lines(self._path))

        def write() -> int:
            _append(self._path, [offset, *Record(*record)])
            return offset

        return self._points.call("log.write", write, f"log.write({name_of(record)})", lambda at: f"offset {at}")


def serve(
    function: Callable[[PartitionFile, Record], Any],
    records: Sequence[Record],
    script: Sequence[Arrival],
    directory: Path,
    points: CrashPoints,
) -> None:
    """Let the records arrive as the script says, from where a killed run stopped; then send unanswered ones again."""
    log, answers = PartitionFile(points, log_of(directory)), answers_of(directory)
    for arrival in _due(records, script, directory):
        record = records[arrival.record]
        points.journal.write("call", f"{name_of(record)} arrives")
        answer = function(log, record)
        said = "refused" if answer is None else f"offset {answer}"
        points.journal.write("call", f"answer to {name_of(record)}: {said}{'' if arrival.heard else ', which is lost'}")
        _append(answers, [*arrival, answer if isinstance(answer, int | None) else repr(answer)])


def log_of(directory: Path) -> Path:
    return directory / "log"


def answers_of(directory: Path) -> Path:
    return directory / "answers"


def read_log(directory: Path) -> list[Stored]:
    """Return what the log holds."""
    return [Stored(*fields) for fields in _lines(log_of(directory))]


def read_answers(directory: Path) -> list[Answered]:
    """Return the answers, in order."""
    return [Answered(*fields) for fields in _lines(answers_of(directory))]


def _due(records: Sequence[Record], script: Sequence[Arrival], directory: Path) -> Iterator[Arrival]:
    yield from script[len(read_answers(directory)) :]
    for _ in range(ROUNDS):
        known = {each.record for each in read_answers(directory) if each.heard and each.answer is not None}
        yield from (Arrival(number) for number in range(len(records)) if number not in known)


def name_of(record: Record) -> str:
    """Return the name of a record in the journal."""
    return f"number {record.sequence} of producer {record.producer_id}"


def _lines(path: Path) -> list[list[Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _append(path: Path, fields: list[Any]) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, json.dumps(fields).encode() + b"\n")
    finally:
        os.close(file)
