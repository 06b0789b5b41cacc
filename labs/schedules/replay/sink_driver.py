"""A driver of a replay that is the real sink, in a thread of its own, held before each thing it asks of Kafka.

`ExactlyOnceKafkaSink` publishes batch by batch, with its own protocol and its own transport. The gates are around the
transport.
"""

from __future__ import annotations

import threading
from typing import Any, cast

from confluent_kafka import KafkaException
from pyspark.sql import SparkSession

from exactly_once_kafka.deadline import Deadline
from exactly_once_kafka.driver_transport import DriverTransport
from exactly_once_kafka.errors import SinkRefused
from exactly_once_kafka.kafka_rows import BatchRows
from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from exactly_once_kafka.transport import Transport
from labs.pipeline.records import WINDOW_MS, result_value
from labs.schedules.replay.driver import Driver
from labs.schedules.replay.gates import Ended, GatedTransport, Gates, SmallCheckpoint, planned_batches, serve

PATIENCE = 60.0  # seconds
ENDING = 10.0  # seconds that a driver may need to end its present step


class SinkDriver(Driver):
    """While it sleeps or is dead, the player gives it no word, and hears no answer from it."""

    def __init__(self, name: str, settings: dict[str, Any], spark: SparkSession):
        super().__init__(name)
        self._spark, self._over = spark, threading.Event()
        self._thread = threading.Thread(
            target=serve, args=(self._try_to_publish, settings, self.theirs), name=name, daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        super().close()
        self._thread.join(ENDING)  # a thread that is in a Kafka client when Python ends may break what that frees

    def _try_to_publish(self, settings: dict[str, Any], gates: Gates) -> None:
        try:
            self._publish(settings, gates)
        except (Ended, SinkRefused, KafkaException):
            raise
        except Exception as error:  # a thread has no log in which a player could read it
            raise Ended(f"{type(error).__name__}: {error}") from error

    def _publish(self, settings: dict[str, Any], gates: Gates) -> None:
        sink = ExactlyOnceKafkaSink(
            settings["name"],
            settings["topic"],
            bootstrap_servers=settings["bootstrap_servers"],
            writers="driver",
            client_id=settings["client_id"],
            transaction_timeout_ms=settings["transaction_timeout_ms"],
        )
        checkpoint = SmallCheckpoint(settings["checkpoint"])
        query: Any = _Query(checkpoint, self._over)
        transport = cast(DriverTransport, sink.transport_for(self._spark, Deadline(PATIENCE, query.stopped)))
        for batch in planned_batches(settings, gates, checkpoint):
            records = checkpoint.records(batch.batch_id)
            values = [(result_value(r * WINDOW_MS, f"record {r}", 1).decode(),) for r in records]
            rows = BatchRows(self._spark.createDataFrame(values, "value string"), settings["topic"])
            transport.start(batch, rows, query, Deadline(PATIENCE, query.stopped), lambda: None)
            gated = GatedTransport(
                transport,
                gates,
                checkpoint,
                batch.batch_id,
                lambda: transport.pending._thread if transport.pending else None,
            )
            sink.publish(batch, cast(Transport, gated))
            gated.note()


class _Query:
    """Stands for the running query: whether it was stopped, and where the sink's note about its marker's topic is."""

    def __init__(self, checkpoint: SmallCheckpoint, over: threading.Event):
        self._file, self.stopped = checkpoint.directory / "exactly-once", over.is_set

    def checkpoint_note(self, name: str) -> _Query:
        return self

    @property
    def name(self) -> str:
        return self._file.name

    def read(self) -> str | None:
        return self._file.read_text() if self._file.exists() else None

    def others(self) -> list[str]:
        return []

    def write(self, text: str) -> None:
        self._file.write_text(text)
