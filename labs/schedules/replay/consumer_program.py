"""A consumer of a replay: it reads records from one topic, writes them to another, and commits its offset."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from labs.schedules.replay.gates import Ended, Gates, main
from labs.schedules.replay.program import PATIENCE, send


def consume(settings: dict[str, Any], gates: Gates) -> None:
    """Take the steps in `settings["program"]` for each record, from number `settings["record"]` on."""
    kafka = {"bootstrap.servers": settings["bootstrap_servers"], "client.id": settings["client_id"], "log_level": 0}
    producer = Producer({**kafka, "acks": "all", "enable.idempotence": True, "linger.ms": 0})
    consumer = Consumer({**kafka, "group.id": settings["name"], "enable.auto.commit": False})
    source, value = settings["source_topic"], b""
    consumer.assign([TopicPartition(source, 0, settings["record"])])
    for record in range(settings["record"], settings["records"]):
        for action in settings["program"]:
            gates.gate(action, row=record)
            if action == "read":
                value = _read(consumer)
            elif action == "write":
                send(producer, settings["topic"], value)
            else:
                consumer.commit(offsets=[TopicPartition(source, 0, record + 1)], asynchronous=False)
            gates.answer = ""


def _read(consumer: Consumer) -> bytes:
    message = consumer.poll(PATIENCE)
    if message is None:
        raise Ended("no record came")
    if message.error():
        raise KafkaException(message.error())
    return message.value() or b""


if __name__ == "__main__":
    main(consume)
