"""Copy wrongly: records and offsets are in one transaction, but four threads write the records.

Each record is there once. The threads overtake each other, so the records of a partition are out of order.
"""

import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Consumer, Message, Producer

SERVERS, GROUP = os.environ["KAFKA_BOOTSTRAP_SERVERS"], os.environ["GROUP"]
SOURCE, SINK = os.environ["SOURCE_TOPIC"], os.environ["SINK_TOPIC"]

consumer = Consumer(
    {
        "bootstrap.servers": SERVERS,
        "group.id": GROUP,
        "group.instance.id": GROUP,  # a restarted job gets its partitions at once, not after session.timeout.ms
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
    }
)
producer = Producer({"bootstrap.servers": SERVERS, "transactional.id": GROUP})
producer.init_transactions()
consumer.subscribe([SOURCE])


def work(record: Message) -> None:
    """Write a record, after work of one millisecond at most."""
    time.sleep(random.random() / 1000)
    producer.produce(SINK, record.value(), record.key(), record.partition())


with ThreadPoolExecutor(4) as threads:
    while True:
        signal.alarm(30)  # ends the job if a call never returns; a new start aborts its transaction
        records = [record for record in consumer.consume(100, timeout=0.2) if not record.error()]
        if records:
            producer.begin_transaction()
            list(threads.map(work, records))
            offsets = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
            producer.commit_transaction()
