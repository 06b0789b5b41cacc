"""The transaction contains the new records and the offsets of the records that were read.

Both become visible in one step, so no crash can come between them. init_transactions() comes first: it aborts the
transaction that a killed process has left open, and fences that process, in case it is still alive. The offset to
send is the consumer's position, which is the offset of the next record. One transaction per record is slow. With a
hundred records in each it is faster, and just as right.
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
