"""Caught: lost. Scenario: killed before commit.

The consumer commits the offset before the transaction.
"""

import json


def copy(consumer, producer, topic):
    producer.init_transactions()
    while (message := consumer.poll()) is not None:
        window_start, ip, count = message.value().decode().split(",")
        result = {"window_start": int(window_start), "ip": ip, "count": int(count)}
        producer.begin_transaction()
        producer.produce(topic, json.dumps(result))
        producer.flush()
        consumer.commit()
        producer.commit_transaction()
