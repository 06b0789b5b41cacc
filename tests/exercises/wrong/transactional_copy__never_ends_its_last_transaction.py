"""Caught: hidden. Scenario: no crash.

Every result is committed, and then one more transaction is begun, written to and left open.
"""

import json


def copy(consumer, producer, topic):
    producer.init_transactions()
    while (message := consumer.poll()) is not None:
        window_start, ip, count = message.value().decode().split(",")
        producer.begin_transaction()
        producer.produce(topic, json.dumps({"window_start": int(window_start), "ip": ip, "count": int(count)}))
        position = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata())
        producer.commit_transaction()
    producer.begin_transaction()
    producer.produce(topic, b"{}")
    producer.flush()
