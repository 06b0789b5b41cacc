"""What a real-time sink asks Kafka with: producers, and the two kinds of marker."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from exactly_once_kafka.marker import MarkerStore
from exactly_once_kafka.options import producer_settings
from exactly_once_kafka.patience import Patience
from exactly_once_kafka.producer import PendingProducer
from exactly_once_kafka.real_time.source_marker import SourceMarker


@dataclass(frozen=True)
class Clients:
    """For the sink `name`, all of whose rows go to `topic`, if it has one. `options` are those of its producers."""

    name: str
    topic: str | None
    marker_topic: str
    bootstrap_servers: str
    options: dict[str, Any]

    def settings(self, transactional_id: str) -> dict[str, Any]:
        """Return librdkafka's settings of a producer with this transactional id. Raises ValueError."""
        return {**self._common, "transactional.id": transactional_id}

    @functools.cached_property
    def _common(self) -> dict[str, Any]:  # made once, so that a task asks for one login token, and not for one each
        return producer_settings(self.name, self.bootstrap_servers, self.options)

    @property
    def timeout(self) -> float:
        """The seconds after which Kafka aborts a transaction."""
        return float(self.settings(self.name)["transaction.timeout.ms"]) / 1000

    def new_epoch(self, transactional_id: str) -> PendingProducer:
        """Begin to get a producer with an epoch of its own, once all has ended of the transaction before."""
        settings = self.settings(transactional_id)
        return PendingProducer(settings, first=functools.partial(self.settle, transactional_id, abort=True))

    def settle(self, transactional_id: str, patience: Patience, *, abort: bool) -> None:
        """See that all has ended of this id's last transaction. One that is open is aborted, or left alone.

        Raises KafkaException, TimeoutError, Undecidable, and what `patience` raises.
        """
        # Imported here, because it takes a while, and who makes a sink in the driver has no use for it.
        from exactly_once_kafka.executors.left_open import settle

        settings = self.settings(transactional_id)
        # Whose name it is is noted in the marker's topic alone; a partition of the source has rows and a group too.
        topic, group = (self.marker_topic, None) if transactional_id == self.name else (self.topic, transactional_id)
        settle(transactional_id, settings, self.marker_topic, topic, patience, abort=abort, group=group)

    def births(self) -> MarkerStore:
        """Return where it is noted which query the name belongs to."""
        return MarkerStore(self.name, self.marker_topic, self.bootstrap_servers, self.settings(self.name))

    def marker(self, key: str) -> SourceMarker:
        """Return the marker of the source partition that `key` names."""
        return SourceMarker(key, self.marker_topic, self.bootstrap_servers, self.settings(key))
