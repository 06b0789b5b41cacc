"""Transfer at least once: the consumer commits its offsets every five seconds, and a kill doubles what came since."""

import json
import os

from confluent_kafka import Consumer, Producer

SERVERS, GROUP = os.environ["KAFKA_BOOTSTRAP_SERVERS"], os.environ["GROUP"]
SOURCE, SINK = os.environ["SOURCE_TOPIC"], os.environ["SINK_TOPIC"]


def postings(value: bytes) -> list[bytes]:
    """Return the two postings of a transfer."""
    transfer = json.loads(value)
    changes = {transfer["from"]: -transfer["amount"], transfer["to"]: transfer["amount"]}
    return [
        json.dumps({"id": transfer["id"], "account": account, "amount": amount}).encode()
        for account, amount in changes.items()
    ]


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
        for posting in postings(record.value()):
            producer.produce(SINK, posting)
    producer.flush()
