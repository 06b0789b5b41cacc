"""Caught: wrong. Scenario: no crash.

The IP is written as a list of one, so that the key of the result is of another type.
"""

import json


def copy(consumer, producer, topic):
    producer.init_transactions()
    while (message := consumer.poll()) is not None:
        window_start, ip, count = message.value().decode().split(",")
        producer.begin_transaction()
        producer.produce(topic, json.dumps({"window_start": int(window_start), "ip": [ip], "count": int(count)}))
        position = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata())
        producer.commit_transaction()
