"""A consumer of a replay: it reads records from one topic, writes them to another, and commits its offset."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from labs.schedules.replay.stepwise import Ended, serve

PATIENCE = 60  # seconds


class ConsumerProgram:
    """Runs `settings["program"]` for each record, from number `record` on."""

    def __init__(self, settings: dict[str, Any]):
        self._settings, self._record, self._step = settings, settings["record"], 0
        kafka = {"bootstrap.servers": settings["bootstrap_servers"], "client.id": settings["client_id"], "log_level": 0}
        self._producer = Producer({**kafka, "acks": "all", "enable.idempotence": True, "linger.ms": 0})
        self._consumer = Consumer({**kafka, "group.id": settings["name"], "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(settings["source_topic"], 0, self._record)])
        self._value = b""

    @property
    def finished(self) -> bool:
        return self._record == self._settings["records"]

    def upcoming(self) -> dict[str, Any]:
        return {"action": self._settings["program"][self._step], "row": self._record}

    def take(self, step: dict[str, Any]) -> str:
        try:
            {"read": self._read, "write": self._write, "commit the offset": self._commit}[step["action"]]()
        except KafkaException as error:
            raise Ended(error.args[0].str()) from None
        self._step += 1
        if self._step == len(self._settings["program"]):
            self._record, self._step = self._record + 1, 0
        return ""

    def _read(self) -> None:
        message = self._consumer.poll(PATIENCE)
        if message is None:
            raise Ended("no record came")
        if message.error():
            raise KafkaException(message.error())
        self._value = message.value() or b""

    def _write(self) -> None:
        failures: list[KafkaError] = []
        self._producer.produce(
            self._settings["topic"],
            self._value,
            partition=0,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
        if self._producer.flush(PATIENCE):
            raise Ended("no answer")
        if failures:
            raise KafkaException(failures[0])

    def _commit(self) -> None:
        behind = TopicPartition(self._settings["source_topic"], 0, self._record + 1)
        self._consumer.commit(offsets=[behind], asynchronous=False)


if __name__ == "__main__":
    serve(ConsumerProgram)
