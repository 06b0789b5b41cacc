"""Copy wrongly: records and offsets are in one transaction, but the offset is that of the last record, not of the next.

Each start reads the last record of each partition again, and copies it again.
"""

import os
import signal

from confluent_kafka import Consumer, Producer, TopicPartition

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
while True:
    signal.alarm(30)  # ends the job if a call never returns; a new start aborts its transaction
    records = [record for record in consumer.consume(100, timeout=0.2) if not record.error()]
    if records:
        producer.begin_transaction()
        for record in records:
            producer.produce(SINK, record.value(), record.key(), record.partition())
        last = {record.partition(): record.offset() for record in records}  # right: record.offset() + 1
        offsets = [TopicPartition(SOURCE, partition, offset) for partition, offset in last.items()]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
        producer.commit_transaction()
