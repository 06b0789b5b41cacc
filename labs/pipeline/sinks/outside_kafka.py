"""What the sinks outside of Kafka have in common: each keeps a batch marker of its own, next to the results."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import TypeVar

from pyspark.sql import DataFrame

from exactly_once_kafka.batch import Batch, BatchSink, Marker
from exactly_once_kafka.kafka_rows import KafkaBatches, check_columns, kafka_rows

Value = TypeVar("Value")


class SinkOutsideKafka(BatchSink):
    """A sink whose place can hold rows and marker in one step: it reads the marker, and drains or writes.

    Rows have a `value` column, as for the Kafka sinks.
    """

    causes = (
        "the checkpoint was deleted, or an older copy of it restored; another query writes to the same place; the "
        "results were deleted or restored without the checkpoint; or Spark repartitioned the query's state"
    )

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        with self._busy:
            batch = self.batch_of(rows, batch_id)
            with self.turn(batch, rows):
                if self.is_done(batch):
                    self.may_be_done()
                    self.drain(rows)
                else:
                    self.write(values_of(rows), batch)
        self.points("before_checkpoint", batch_id)

    def is_done(self, batch: Batch) -> bool:
        """Tell whether the batch was committed before. Raises SinkRefused, BatchFailed."""
        return self.decide(self.read_marker(batch), batch)

    @abstractmethod
    def read_marker(self, batch: Batch) -> Marker | None:
        """Return which batch was committed last. Raises BatchFailed, which names the batch that comes now."""

    @abstractmethod
    def write(self, values: Iterable[str], batch: Batch) -> None:
        """Write a batch that is not committed yet, and its marker, in one step. Raises BatchFailed, RowRefused.

        Right before that step it calls `may_be_done`.
        """


def values_of(rows: DataFrame) -> Iterator[str]:
    """Yield the `value` column, row by row as Spark computes them, as the Kafka sinks do. Raises ValueError."""
    check_columns(rows, topic="any")
    for batch in kafka_rows(KafkaBatches(rows, topic="any"), topic="any"):
        for _, value, *_ in batch:
            if value is None:
                raise ValueError("a row's value is null: for this sink each row is a value")
            try:
                yield value.decode()
            except UnicodeDecodeError as error:
                raise ValueError(f"a row's value is no UTF-8: {value!r:.80}, {error.reason}") from None


def chunks(values: Iterable[Value], size: int) -> Iterator[list[Value]]:
    """Yield lists of up to `size` values."""
    values = iter(values)
    while chunk := list(itertools.islice(values, size)):
        yield chunk
