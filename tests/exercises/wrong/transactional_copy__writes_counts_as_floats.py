"""Caught: wrong. Scenario: no crash.

Each count is written as 10.0, which Python calls equal to 10, and no schema does.
"""

import json


def copy(consumer, producer, topic):
    producer.init_transactions()
    while (message := consumer.poll()) is not None:
        window_start, ip, count = message.value().decode().split(",")
        producer.begin_transaction()
        producer.produce(topic, json.dumps({"window_start": int(window_start), "ip": ip, "count": float(count)}))
        position = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata())
        producer.commit_transaction()
