"""What one task of one epoch knows of itself: whose it is, and what it has to say where it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import KafkaException
from pyspark import TaskContext

from exactly_once_kafka.errors import SinkRefused, Undecidable, failure, undecided
from exactly_once_kafka.marker_topic import Forgetful
from exactly_once_kafka.patience import Patience


@dataclass(frozen=True)
class Task:
    """Task `number` of epoch `epoch` of the query `query_id`, for the sink `name`."""

    name: str
    number: int
    epoch: int
    query_id: str
    by_token: bool = False  # does it log in with a token of its own

    @classmethod
    def current(cls, name: str, number: int, epoch: int) -> Task:
        """Return the task that runs in this process. Raises SinkRefused outside of a streaming query."""
        context = TaskContext.get()
        query_id = context.getLocalProperty("sql.streaming.queryId") if context else None
        if not query_id:
            raise SinkRefused(
                f"sink {name!r}: no id of a streaming query reaches the task, so that a deleted checkpoint would not "
                "be noticed. Use the sink with writeStream.foreach"
            )
        return cls(name, number, epoch, query_id)

    @property
    def _itself(self) -> str:
        return f"sink {self.name!r}, epoch {self.epoch}, task {self.number} of query {self.query_id}"

    def refusal(self, why: str) -> SinkRefused:
        return SinkRefused(
            f"{self._itself}: {why}. Writing could lose or double rows. Likely causes: the checkpoint was deleted; "
            "another query uses the name; or the marker's topic was deleted. What to do: restore the checkpoint, or "
            "give a new query a new name"
        )

    @contextmanager
    def explaining(self, patience: Callable[[], Patience]) -> Iterator[None]:
        """Raise what Kafka has to say within the block as BatchFailed or SinkRefused."""
        try:
            yield
        except (KafkaException, TimeoutError) as error:
            spent = patience()
            failed = failure(error, self.name, self.epoch, spent.elapsed, spent.seconds, self.by_token)
            said = str(failed).replace(f"batch {self.epoch}:", f"epoch {self.epoch}, task {self.number}:")
            raise type(failed)(said) from error
        except Undecidable as error:
            said = undecided(error, "the results of the source's records around theirs")
            raise SinkRefused(
                f"{self._itself}: {said}. Is the offset of a group among them, then delete the group before: the "
                "marker's topic decides then"
            ) from error
        except Forgetful as unsafe:
            raise SinkRefused(f"{self._itself}: {unsafe}") from unsafe
