"""The base classes of the sinks outside Kafka: each sink keeps a marker of its own next to the results."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from pyspark.sql import DataFrame

from exactly_once_kafka.batch_sink import BatchSink
from exactly_once_kafka.kafka_rows import BatchRows, check_columns, kafka_rows
from exactly_once_kafka.protocol import Batch
from exactly_once_kafka.transport import Transport, execute_and_discard

Value = TypeVar("Value")


class TransportOutsideKafka(Transport):
    """Takes the steps of one batch. It needs no epochs: a commit fails if another driver has moved the marker."""

    def __init__(
        self, batch: Batch, values: Iterable[str], execute: Callable[[], object], in_rows: Callable[[], object]
    ):
        self.batch, self.values, self.in_rows = batch, values, in_rows
        self._execute = execute

    def drain(self) -> None:
        self._execute()


class SinkOutsideKafka(BatchSink):
    """A sink whose place can publish rows and marker in one step. Rows have a `value` column, as for Kafka sinks."""

    causes = (
        "the checkpoint was deleted, or an older copy of it restored; another query writes to the same place; the "
        "results were deleted or restored without the checkpoint; or Spark repartitioned the query's state"
    )

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        with self._busy:
            batch = self.batch_of(rows, batch_id)
            with self.turn(batch, rows):
                self.publish_values(batch, values_of(rows), lambda: execute_and_discard(rows))

    def publish_values(self, batch: Batch, values: Iterable[str], execute: Callable[[], object]) -> None:
        """Publish the values as that batch; if it is published already, `execute` its plan.

        Raises SinkRefused, BatchFailed.
        """
        self.publish(batch, self.transport(batch, values, execute))

    @abstractmethod
    def transport(self, batch: Batch, values: Iterable[str], execute: Callable[[], object]) -> Transport:
        """Return the transport for this batch. Its steps raise SinkRefused, BatchFailed, ValueError for a row."""


def values_of(rows: DataFrame) -> Iterator[str]:
    """Yield the `value` column, row by row as Spark computes them, as the Kafka sinks do. Raises ValueError."""
    check_columns(rows, topic="any")
    for batch in kafka_rows(BatchRows(rows, topic="any"), topic="any"):
        for _, value, *_ in batch:
            if value is None:
                raise ValueError("a row's value is null: this sink needs a value in each row")
            try:
                yield value.decode()
            except UnicodeDecodeError as error:
                raise ValueError(f"a row's value is not UTF-8: {value!r:.80}, {error.reason}") from None


def chunks(values: Iterable[Value], size: int) -> Iterator[list[Value]]:
    """Yield lists of up to `size` values."""
    values = iter(values)
    while chunk := list(itertools.islice(values, size)):
        yield chunk
