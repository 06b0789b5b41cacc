"""Copy exactly once with kafka-python: the records and the offsets of the group are in one transaction."""

import os
import signal

from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata

SERVERS, GROUP = os.environ["KAFKA_BOOTSTRAP_SERVERS"], os.environ["GROUP"]
SOURCE, SINK = os.environ["SOURCE_TOPIC"], os.environ["SINK_TOPIC"]

consumer = KafkaConsumer(
    SOURCE,
    bootstrap_servers=SERVERS,
    group_id=GROUP,
    group_instance_id=GROUP,  # a restarted job gets its partitions at once, not after session_timeout_ms
    auto_offset_reset="earliest",
    isolation_level="read_committed",
    enable_auto_commit=False,
)
producer = KafkaProducer(bootstrap_servers=SERVERS, transactional_id=GROUP)
producer.init_transactions()
while True:
    signal.alarm(30)  # ends the job if a call never returns; a new start aborts its transaction
    fetched = consumer.poll(timeout_ms=200)
    if fetched:
        producer.begin_transaction()
        for partition, records in fetched.items():
            for record in records:
                producer.send(SINK, record.value, record.key, partition=partition.partition)
        offsets = {each: OffsetAndMetadata(consumer.position(each), "", -1) for each in fetched}
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        producer.commit_transaction()
