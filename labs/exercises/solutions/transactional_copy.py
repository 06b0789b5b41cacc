"""The offsets go into the same transaction as the records that were made of them.

Either both are visible or none: no crash can come between. init_transactions() comes first: it ends what a killed
predecessor left open, and fences it should it wake up. The offset to send is the position, that of the next
record. One transaction per record is slow and clear; one per hundred records is the same with a longer loop.
"""

import json


def copy(consumer, producer, topic):
    producer.init_transactions()
    while (message := consumer.poll()) is not None:
        window_start, ip, count = message.value().decode().split(",")
        result = {"window_start": int(window_start), "ip": ip, "count": int(count)}
        producer.begin_transaction()
        producer.produce(topic, json.dumps(result))
        position = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata())
        producer.commit_transaction()
