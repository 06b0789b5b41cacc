"""What a real-time sink asks Kafka with: settings of producers, and the two kinds of marker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from exactly_once_kafka.marker import MarkerStore
from exactly_once_kafka.options import producer_settings
from exactly_once_kafka.real_time.source_marker import SourceMarker


@dataclass(frozen=True)
class Clients:
    """For the sink `name`; `options` are those of its producers."""

    name: str
    marker_topic: str
    bootstrap_servers: str
    options: dict[str, Any]

    def settings(self, transactional_id: str) -> dict[str, Any]:
        """Return librdkafka's settings of a producer with this transactional id. Raises ValueError."""
        return producer_settings(transactional_id, self.bootstrap_servers, self.options)

    @property
    def timeout(self) -> float:
        """The seconds after which Kafka aborts a transaction."""
        return float(self.settings(self.name)["transaction.timeout.ms"]) / 1000

    def births(self) -> MarkerStore:
        """Return where it is noted which query the name belongs to."""
        return MarkerStore(self.name, self.marker_topic, self.bootstrap_servers, self.settings(self.name))

    def marker(self, key: str) -> SourceMarker:
        """Return the marker of the source partition that `key` names."""
        return SourceMarker(key, self.marker_topic, self.bootstrap_servers, self.settings(key))
