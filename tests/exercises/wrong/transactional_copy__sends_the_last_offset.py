"""Caught: doubled. Scenario: no crash.

The offset sent is that of the record, and not of the next one.
"""

import json

from confluent_kafka import TopicPartition


def copy(consumer, producer, topic):
    producer.init_transactions()
    while (message := consumer.poll()) is not None:
        window_start, ip, count = message.value().decode().split(",")
        result = {"window_start": int(window_start), "ip": ip, "count": int(count)}
        producer.begin_transaction()
        producer.produce(topic, json.dumps(result))
        position = [TopicPartition(message.topic(), message.partition(), message.offset())]
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata())
        producer.commit_transaction()
