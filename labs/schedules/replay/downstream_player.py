"""Carry out a schedule of who reads on: consumers of one topic, who write what they read to another."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from labs.equipment.eventually import eventually
from labs.equipment.topics import create_topic, remove_topics
from labs.pipeline.records import WINDOW_MS, result_value
from labs.schedules.model.downstream import DownstreamStage
from labs.schedules.replay.bench import PATIENCE, CannotPlay
from labs.schedules.replay.crash_player import CrashPlayer


class DownstreamPlayer(CrashPlayer):
    """Consumers of a topic that was written beforehand."""

    program, first = "labs.schedules.replay.consumer_program", "consumer 1"
    stage: DownstreamStage

    def start_first(self) -> None:
        self._source = f"{self.name}-source"
        create_topic(self.direct, self._source, partitions=1)
        self._stack.callback(remove_topics, self.direct, self._source)
        producer = Producer({"bootstrap.servers": self.direct, "acks": "all", "log_level": 0})
        for record in self.records:
            producer.produce(self._source, result_value(record * WINDOW_MS, f"record {record}", 1), partition=0)
        if producer.flush(PATIENCE):
            raise CannotPlay("the source could not be written")
        settings = {"bootstrap.servers": self.direct, "group.id": self.name, "log_level": 0}
        self._group = Consumer(settings)
        self._stack.callback(self._group.close)
        super().start_first()

    def more_settings(self, name: str) -> dict[str, Any]:
        return {"source_topic": self._source, "records": len(self.records)}

    def place(self) -> dict[str, int]:
        return eventually(self._committed, PATIENCE)  # a broker that has just started coordinates no groups yet

    def _committed(self) -> dict[str, int]:
        [committed] = self._group.committed([TopicPartition(self._source, 0)], timeout=PATIENCE)
        return {"record": max(0, committed.offset)}

    def due(self) -> range:
        return range(self.place()["record"])
