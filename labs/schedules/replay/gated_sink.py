"""The real sink with a gate before each request of the model's, for whoever drives it through a schedule."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol, cast

from exactly_once_kafka.batch import Batch, Marker
from exactly_once_kafka.patience import Patience
from exactly_once_kafka.plan import spelled
from exactly_once_kafka.producer import PendingProducer
from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from exactly_once_kafka.transaction import Transaction
from labs.equipment.eventually import eventually
from labs.schedules.replay.checkpoint import SmallCheckpoint

PATIENCE = 60.0  # seconds


class Gates(Protocol):
    """Who opens the gates. `over`: nobody waits any more; `ahead`: epochs that are asked for and not waited for."""

    over: threading.Event
    ahead: list[PendingProducer]

    def gate(self, action: str, batch: int, row: int | None = None, ahead: bool = False) -> None:
        """Say which step comes next, and wait for the word to take it."""
        ...

    def tell(self, answer: str) -> None:
        """Say what came back for the last step."""
        ...


class GatedSink(ExactlyOnceKafkaSink):
    """The sink with a gate before each request of the model's; `said` is the answer to the last one."""

    def __init__(self, driver: Gates, settings: dict[str, Any]):
        super().__init__(
            settings["name"],
            settings["topic"],
            bootstrap_servers=settings["bootstrap_servers"],
            writers="driver",
            points=self._point,
            client_id=settings["client_id"],
            transaction_timeout_ms=settings["transaction_timeout_ms"],
        )
        self.checkpoint = SmallCheckpoint(settings["checkpoint"])
        self.said: str | None = None  # what came back for the last step
        self._driver, self.first = driver, 0
        self._batch_id, self._looking = 0, False
        self._gated(self._store, "read", "read marker")
        self._gated(self._store, "send", "marker")

    def batch_of(self, rows: Any, batch_id: int) -> Batch:
        """Say which batch it is, from the small checkpoint instead of Spark's."""
        self._batch_id, planned = batch_id, self.checkpoint.planned
        self._query = _Query(self.checkpoint)  # type: ignore[assignment]
        previous = spelled({"end": planned[batch_id - 1]}) if batch_id else None
        return Batch("a query", batch_id, spelled({"end": planned[batch_id]}), previous, self._driver.over.is_set)

    def _new_epoch(self, retire: Transaction | None = None) -> PendingProducer:
        self._pass("fence", ahead=retire is not None)
        pending = cast(PendingProducer, super()._new_epoch(retire))  # the driver writes
        if retire is None:
            eventually(lambda: not pending._thread.is_alive() or self._driver.over.is_set(), PATIENCE, 0.01)
        else:
            self._driver.ahead.append(pending)
        return pending

    def _look(self, batch: Batch, patience: Patience) -> Marker | None:
        self._pass("read marker")
        self._looking = True
        marker = super()._look(batch, patience)
        self._looking = False
        self.said = _words(marker)
        return marker

    def _point(self, point: str, batch_id: int) -> None:
        if point == "before_write":
            self._pass("row", self.first)
        elif point == "before_commit":
            self._pass("commit")

    def _gated(self, store: Any, method: str, action: str) -> None:
        """Put a gate before a method of the marker's store."""
        original: Callable[..., Any] = getattr(store, method)

        def gated(*arguments: Any, **options: Any) -> Any:
            if self._looking:
                return original(*arguments, **options)
            self._pass(action)
            came = original(*arguments, **options)
            if action == "read marker":
                self.said = _words(came)
            return came

        setattr(store, method, gated)

    def _pass(self, action: str, row: int | None = None, ahead: bool = False) -> None:
        """Say what came back for the step before, and stand at the next gate."""
        self.tell()
        self.said = None if ahead else "ok"
        self._driver.gate(action, self._batch_id, row, ahead)

    def tell(self) -> None:
        """Say what came back for the last step of this batch, if anybody waits for that."""
        if self.said is not None:
            self._driver.tell(self.said)
        self.said = None


class _Query:
    """Stands for the running query: where the sink's note about its marker's topic is kept."""

    def __init__(self, checkpoint: SmallCheckpoint):
        self._file = checkpoint.directory / "exactly-once"

    def witness(self, name: str) -> _Query:
        return self

    @property
    def name(self) -> str:
        return self._file.name

    def read(self) -> str | None:
        return self._file.read_text() if self._file.exists() else None

    def write(self, text: str) -> None:
        self._file.write_text(text)


def _words(marker: Marker | None) -> str:
    return f"batch {marker.batch_id}" if marker else "none"
