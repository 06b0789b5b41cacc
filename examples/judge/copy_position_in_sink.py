"""Copy exactly once without a consumer group: each record in the sink says which offset of the source it is from.

A restarted job reads the last record of each sink partition, and goes on behind it. The transactional id fences a
predecessor that is still writing, so that nothing can come behind what was read.
"""

import os
import signal

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

SERVERS, GROUP = os.environ["KAFKA_BOOTSTRAP_SERVERS"], os.environ["GROUP"]
SOURCE, SINK = os.environ["SOURCE_TOPIC"], os.environ["SINK_TOPIC"]
SETTINGS = {"bootstrap.servers": SERVERS, "group.id": GROUP, "enable.auto.commit": False}


def next_offset(partition: int) -> int:
    """Return the source offset behind the last record that is committed in a sink partition."""
    reader = Consumer({**SETTINGS, "isolation.level": "read_committed", "enable.partition.eof": True})
    reader.assign([TopicPartition(SINK, partition, 0)])
    offset = 0
    while True:
        record = reader.poll(30)
        if record is None:  # silence is not the end: to start at 0 would copy everything again
            raise SystemExit(f"Kafka does not answer for partition {partition} of {SINK}")
        if error := record.error():
            if error.code() != KafkaError._PARTITION_EOF:
                raise SystemExit(f"partition {partition} of {SINK} cannot be read: {error}")
            reader.close()
            return offset
        offset = int(dict(record.headers())["source-offset"]) + 1


producer = Producer({"bootstrap.servers": SERVERS, "transactional.id": GROUP})
producer.init_transactions()  # fences the predecessor, and aborts its transaction: only then read the sink
consumer = Consumer({**SETTINGS, "isolation.level": "read_committed"})
partitions = consumer.list_topics(SOURCE, timeout=10).topics[SOURCE].partitions
consumer.assign([TopicPartition(SOURCE, each, next_offset(each)) for each in partitions])
while True:
    signal.alarm(30)  # ends the job if a call never returns; a new start aborts its transaction
    records = [record for record in consumer.consume(100, timeout=0.2) if not record.error()]
    if records:
        producer.begin_transaction()
        for record in records:
            headers = {"source-offset": str(record.offset())}
            producer.produce(SINK, record.value(), record.key(), record.partition(), headers=headers)
        producer.commit_transaction()
