"""A task of a shared transaction: it writes to a partition of its own, under the producer id and epoch of its driver.

No client library lets several processes share a producer, so the requests are put together by hand: record batches and
messages by kafka-python.
"""

from __future__ import annotations

from typing import Any

from kafka.errors import NoError, for_code
from kafka.protocol.producer.produce import ProduceRequest, ProduceResponse
from kafka.record.default_records import DefaultRecordBatchBuilder

from labs.pipeline.records import WINDOW_MS, result_value
from labs.pipeline.two_phase.kafka_request import BrokerConnection
from labs.schedules.replay.stepwise import Ended, serve

VERSION = 12  # from here on, Kafka adds the partition to the transaction by itself
PATIENCE = 60.0  # seconds


class TaskProgram:
    """Sends `rows` records from number `first` on, numbered from `sequence` on in the partition."""

    def __init__(self, settings: dict[str, Any]):
        self._settings, self._row = settings, 0
        self._broker = BrokerConnection(settings["bootstrap_servers"], PATIENCE, settings["client_id"])

    @property
    def finished(self) -> bool:
        return self._row == self._settings["rows"]

    def upcoming(self) -> dict[str, Any]:
        return {"action": "row", "batch": 0, "row": self._settings["first"] + self._row}

    def take(self, step: dict[str, Any]) -> str:
        records = self._batch(step["row"])
        topic = ProduceRequest.TopicProduceData
        partition = topic.PartitionProduceData(index=self._settings["partition"], records=records)
        request = ProduceRequest(
            transactional_id=self._settings["name"],
            acks=-1,
            timeout_ms=5000,
            topic_data=[topic(name=self._settings["topic"], partition_data=[partition])],
        )
        answer = self._broker.ask(request, ProduceResponse, version=VERSION)
        error = for_code(answer.responses[0].partition_responses[0].error_code)
        if error is not NoError:
            raise Ended(error.__name__)
        self._row += 1
        return "ok"

    def _batch(self, record: int) -> bytes:
        builder = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=0,
            is_transactional=1,
            producer_id=self._settings["producer_id"],
            producer_epoch=self._settings["epoch"],
            base_sequence=self._settings["sequence"] + self._row,
            batch_size=1 << 14,
        )
        builder.append(0, None, None, result_value(record * WINDOW_MS, f"record {record}", 1), [])
        return bytes(builder.build())


if __name__ == "__main__":
    serve(TaskProgram)
