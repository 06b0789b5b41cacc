"""An exactly-once Kafka sink for PySpark's Structured Streaming: one Kafka transaction per micro-batch.

A name is loaded when it is first asked for: who only wants the fault points does not wait for pyspark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exactly_once_kafka.batch import Batch, BatchSink, Marker
    from exactly_once_kafka.errors import BatchFailed, SinkRefused
    from exactly_once_kafka.points import FAULT_POINTS
    from exactly_once_kafka.real_time.points import REAL_TIME_POINTS
    from exactly_once_kafka.real_time.sink import RealTimeKafkaSink
    from exactly_once_kafka.sink import ExactlyOnceKafkaSink

__all__ = [
    "FAULT_POINTS",
    "REAL_TIME_POINTS",
    "Batch",
    "BatchFailed",
    "BatchSink",
    "ExactlyOnceKafkaSink",
    "Marker",
    "RealTimeKafkaSink",
    "SinkRefused",
]
__version__ = "1.0.0"

_MODULES = {
    "FAULT_POINTS": "points",
    "Batch": "batch",
    "BatchFailed": "errors",
    "BatchSink": "batch",
    "ExactlyOnceKafkaSink": "sink",
    "Marker": "batch",
    "REAL_TIME_POINTS": "real_time.points",
    "RealTimeKafkaSink": "real_time.sink",
    "SinkRefused": "errors",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
