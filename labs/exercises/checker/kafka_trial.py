"""The trials of the Kafka exercises: a source topic that all share, and a fresh place for each one's results."""

from __future__ import annotations

import itertools
import json
import sqlite3
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from labs.equipment.eventually import eventually
from labs.equipment.topics import create_topic
from labs.evidence.auditor.expected import count_by_window
from labs.evidence.auditor.observed import Key, Reading, Result
from labs.evidence.readers.results import read_results
from labs.exercises.checker.scenario import Lab
from labs.pipeline.log.generate import classroom
from labs.pipeline.records import parse_result_value

NUMBERS = itertools.count(1)
A_MOMENT = 3.0  # seconds: Kafka needs milliseconds to end a transaction that was committed


def results_of_a_log(windows: int = 4, clients: int = 5) -> dict[Key, int]:
    """Return the results that the exercises pass on: (window start, IP) -> count."""
    return dict(sorted(count_by_window(classroom(windows=windows, clients=clients)).items()))


def source_topic(lab: Lab, name: str, values: Sequence[bytes]) -> str:
    """Return a topic of one partition with these records, made once per check: record n has offset n."""
    if name not in lab.kept:
        topic = create_topic(lab.servers, f"{name}-{uuid.uuid4().hex[:8]}", partitions=1)
        producer = Producer({"bootstrap.servers": lab.servers, "enable.idempotence": True, "log_level": 0})
        for value in values:
            producer.produce(topic, value, partition=0)
        if producer.flush(30):
            raise RuntimeError(f"the source topic {topic} could not be filled within 30 s: is the broker alive?")
        lab.kept[name] = topic
    return lab.kept[name]


class KafkaTrial:
    """A trial whose code reads `values` from a topic. Subclasses say where the results are."""

    source = "source"

    def __init__(self, lab: Lab, values: Sequence[bytes], expected: Mapping[Key, int], keys: Sequence[Key]):
        self.expected, self._keys = expected, keys
        self.number = next(NUMBERS)
        self.directory = lab.directory / f"trial-{self.number}"
        self.directory.mkdir()
        self.servers, self.topic = lab.servers, source_topic(lab, self.source, values)
        self.group = f"{self.topic}-{self.number}"
        eventually(self._coordinator_is_there)

    def _coordinator_is_there(self) -> bool:
        """Ask for the group's offset: a new Kafka has to make the coordinator first, which is no fault of the code."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": self.group, "log_level": 0})
        try:
            [found] = consumer.committed([TopicPartition(self.topic, 0)], timeout=5)
            return found.error is None
        finally:
            consumer.close()

    def tools(self) -> dict[str, Any]:
        return {"servers": self.servers, "topic": self.topic, "group": self.group}

    def records_of(self, key: Key) -> list[int]:
        return [number for number, each in enumerate(self._keys) if each == key]


def read_published(servers: str, topic: str) -> Reading:
    """Return what the code has published for read_committed readers. Raises ValueError for what is no result.

    The code has ended: a transaction that is still open after a moment is one that nobody commits any more.
    """
    return read_results(servers, topic, patience=A_MOMENT)


def read_outside(path: Path) -> Iterable[Result]:
    """Yield what `handle` has done in the outside world. Raises ValueError."""
    for line in path.read_text().splitlines() if path.exists() else ():
        yield Result(*parse_result_value(json.loads(line)["value"]))


def read_table(path: Path, table: str) -> list[Result]:
    """Return the rows of a SQLite table with the columns window_start, ip and count. Raises ValueError."""
    connection = sqlite3.connect(path)
    try:
        rows = connection.execute(f"SELECT window_start, ip, count FROM {table}").fetchall()
    except sqlite3.Error as error:
        raise ValueError(f"table {table}: {error}") from error
    finally:
        connection.close()
    try:
        return [Result(*row) for row in rows]
    except TypeError as error:
        raise ValueError(f"table {table} has a row that is no result: {error}") from error
