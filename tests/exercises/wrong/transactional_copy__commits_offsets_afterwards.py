"""Caught: doubled. Scenario: killed after commit.

The consumer commits the offset after the transaction.
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
        consumer.commit()
