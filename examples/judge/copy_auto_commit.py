"""Copy at least once: the consumer commits its offsets every five seconds. A kill doubles what was written since."""

import os

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
    }
)
producer = Producer({"bootstrap.servers": SERVERS})
consumer.subscribe([SOURCE])
while True:
    records = [record for record in consumer.consume(100, timeout=0.2) if not record.error()]
    for record in records:
        producer.produce(SINK, record.value(), record.key(), record.partition())
    producer.flush()
