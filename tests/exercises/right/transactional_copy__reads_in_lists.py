"""It reads up to a hundred records at once, and copies them in one transaction."""

import json


def copy(consumer, producer, topic):
    producer.init_transactions()
    while batch := [message for message in consumer.consume(100, timeout=2) if not message.error()]:
        producer.begin_transaction()
        for message in batch:
            window_start, ip, count = message.value().decode().split(",")
            producer.produce(topic, json.dumps({"window_start": int(window_start), "ip": ip, "count": int(count)}))
        position = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata())
        producer.commit_transaction()
