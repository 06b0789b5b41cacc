"""An exactly-once Kafka sink for PySpark's Structured Streaming: one Kafka transaction per micro-batch.

A name is imported when it is first used, so that importing only the fault points does not load pyspark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exactly_once_kafka.batch_sink import BatchSink
    from exactly_once_kafka.errors import BatchFailed, SinkRefused
    from exactly_once_kafka.points import FAULT_POINTS
    from exactly_once_kafka.protocol import Batch, Marker
    from exactly_once_kafka.sink import ExactlyOnceKafkaSink

__all__ = [
    "FAULT_POINTS",
    "Batch",
    "BatchFailed",
    "BatchSink",
    "ExactlyOnceKafkaSink",
    "Marker",
    "SinkRefused",
]
__version__ = "1.0.0"

_MODULES = {
    "FAULT_POINTS": "points",
    "Batch": "protocol",
    "BatchFailed": "errors",
    "BatchSink": "batch_sink",
    "ExactlyOnceKafkaSink": "sink",
    "Marker": "protocol",
    "SinkRefused": "errors",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
