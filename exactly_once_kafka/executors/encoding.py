"""The sink's settings that say how record batches are made; they have librdkafka's names."""

from __future__ import annotations

from typing import Any, NamedTuple

from exactly_once_kafka.executors.record_batch import LARGEST

PARTITIONERS = ("murmur2", "murmur2_random")


class Encoding(NamedTuple):
    """How record batches are made: of at most `largest` bytes before they are compressed, but of one row at least."""

    largest: int = LARGEST
    compression: str = "none"


def encoding_of(settings: dict[str, Any]) -> Encoding:
    """Return how record batches are to be made. Raises ValueError for a setting that could not be followed."""
    partitioner = settings.get("partitioner", PARTITIONERS[0])
    if partitioner not in PARTITIONERS:
        raise ValueError(f"executors place keys as Java clients do (murmur2), not by partitioner {partitioner!r}")
    bounds = [int(settings[name]) for name in ("message.max.bytes", "batch.size") if name in settings]
    codecs = [str(settings[name]).lower() for name in ("compression.type", "compression.codec") if name in settings]
    return Encoding(min([LARGEST, *bounds]), codecs[0] if codecs else "none")
