"""Copy with a new transactional id at each start: nobody aborts the transaction of a killed job.

Kafka aborts it after transaction.timeout.ms, 60 seconds by default. Until then the new job does not get the offsets of
the group, and readers of the sink see nothing new.
"""

import os
import uuid

from confluent_kafka import Consumer, Producer

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
producer = Producer({"bootstrap.servers": SERVERS, "transactional.id": f"{GROUP}-{uuid.uuid4()}"})
producer.init_transactions()
consumer.subscribe([SOURCE])
while True:
    records = [record for record in consumer.consume(100, timeout=0.2) if not record.error()]
    if records:
        producer.begin_transaction()
        for record in records:
            producer.produce(SINK, record.value(), record.key(), record.partition())
        offsets = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
        producer.commit_transaction()
