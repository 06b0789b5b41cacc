"""What one task of one epoch writes: its rows, in transactions that end with the task, or after a while.

Commits come from two threads: from the task's own, and from a timer's, because an epoch may last for hours and Spark
hands over nothing that could be waited with.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from exactly_once_kafka.patience import Patience
from exactly_once_kafka.real_time.birth import Birth
from exactly_once_kafka.real_time.clients import Clients
from exactly_once_kafka.real_time.partition_writer import PartitionWriter, key_of
from exactly_once_kafka.real_time.row import Record
from exactly_once_kafka.real_time.task import Task
from exactly_once_kafka.tokens import by_token


class TaskWriter:
    """Writes through a `kind` of PartitionWriter, made for the first row. Calls `point` with the name of each point.

    Raises SinkRefused, BatchFailed; after any of them it is of no more use.
    """

    def __init__(
        self,
        task: Task,
        clients: Clients,
        kind: Callable[..., PartitionWriter],
        point: Callable[[str], object],
        commit_seconds: float,
    ):
        self._task = replace(task, by_token=by_token(clients.settings(clients.name)))
        self._clients, self._kind, self._point = clients, kind, point
        self._commit_seconds = commit_seconds
        self._lock = threading.RLock()
        self._failure: Exception | None = None
        self._writer: PartitionWriter | None = None
        self._source: tuple[str, int] | None = None
        self._timer: threading.Timer | None = None
        self._birth = Birth(self._task, clients)

    def begin(self) -> None:
        """Note whose name it is, in the first task of all. Nothing else is asked of Kafka before there is a row."""
        if self._task.epoch == 0 and self._task.number == 0:
            with self._task.explaining(lambda: self._birth.patience):
                self._birth.note()

    def write(self, topic: str, partition: int, offset: int, record: Record) -> None:
        """Write what was made of this record of the source, unless it was published before."""
        with self._lock:
            self._raise_failure()
            writer = self._writer_of(topic, partition)
            with self._task.explaining(lambda: writer.patience):
                writer.write(offset, record)
            if self._timer is None:
                self._timer = threading.Timer(self._commit_seconds, self._commit_early)
                self._timer.daemon = True
                self._timer.start()

    def end(self, publish: bool) -> None:
        """Commit what was written and is not committed yet, or abort it."""
        with self._lock:
            if self._timer:
                self._timer.cancel()
                self._timer = None  # it leads back here: the clients would stay until Python looks for such circles
            if self._writer is not None:
                with self._task.explaining(self._patience):
                    if publish and self._failure is None:
                        self._writer.commit()
                    else:
                        self._writer.abort()
            self._raise_failure()

    def _commit_early(self) -> None:
        with self._lock:
            self._timer = None
            try:
                if self._writer is not None and self._failure is None:
                    with self._task.explaining(self._patience):
                        self._writer.commit()
            except Exception as error:  # told to whoever comes next: this is a thread of its own
                self._failure = error

    def _writer_of(self, topic: str, partition: int) -> PartitionWriter:
        if self._writer is None:
            with self._task.explaining(lambda: self._birth.patience):
                self._birth.check()
            key = key_of(self._clients.name, topic, partition)
            self._writer = self._kind(self._task, self._clients, key, self._point)
            self._source = topic, partition
        if self._source != (topic, partition):
            raise self._task.refusal(
                f"the task has rows of {self._source} and of {(topic, partition)}; expected those of one partition of "
                "the source, as they come in Real-Time Mode without a shuffle"
            )
        return self._writer

    def _patience(self) -> Patience:
        return self._writer.patience if self._writer else Patience(self._clients.timeout)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
