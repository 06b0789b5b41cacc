"""Caught: doubled. Scenario: killed before commit.

Records in one transaction, their offsets in the next.
"""

import json


def copy(consumer, producer, topic):
    producer.init_transactions()
    while (message := consumer.poll()) is not None:
        window_start, ip, count = message.value().decode().split(",")
        result = {"window_start": int(window_start), "ip": ip, "count": int(count)}
        producer.begin_transaction()
        producer.produce(topic, json.dumps(result))
        producer.commit_transaction()
        producer.begin_transaction()
        position = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata())
        producer.commit_transaction()
