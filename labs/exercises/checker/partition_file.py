"""A partition's log in a file, and the producers that send to it: what the exercise on sequence numbers works with.

Guarantee: what was written survives a SIGKILL, and so does what the producers have heard; a record whose answer they
did not hear is sent again, with the same number. Where it stops: one partition, one record at a time, no epochs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from labs.exercises.checker.crash_points import CrashPoints

ROUNDS = 2  # in which a producer repeats what nobody has acknowledged, before it gives up


class Record(NamedTuple):
    """What a producer sends: who it is, the how manyeth of its records this is (from 0), and a line of the log."""

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
    """The record of that number arrives; `heard` tells whether the answer arrives too."""

    record: int
    heard: bool = True


class Answered(NamedTuple):
    """What was answered to an arrival. `answer` is an offset, or None for a refusal."""

    record: int
    heard: bool
    answer: Any


class PartitionFile:
    """The log that the student's function is handed."""

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
    """Let the records arrive as the script says, from where an earlier run was killed; then what nobody answered."""
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
    """Return what was answered, in order."""
    return [Answered(*fields) for fields in _lines(answers_of(directory))]


def _due(records: Sequence[Record], script: Sequence[Arrival], directory: Path) -> Iterator[Arrival]:
    yield from script[len(read_answers(directory)) :]
    for _ in range(ROUNDS):
        known = {each.record for each in read_answers(directory) if each.heard and each.answer is not None}
        yield from (Arrival(number) for number in range(len(records)) if number not in known)


def name_of(record: Record) -> str:
    """Return what the journal calls a record."""
    return f"number {record.sequence} of producer {record.producer_id}"


def _lines(path: Path) -> list[list[Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _append(path: Path, fields: list[Any]) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, json.dumps(fields).encode() + b"\n")
    finally:
        os.close(file)
