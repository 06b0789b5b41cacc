"""Transfer wrongly: each posting has a transaction of its own. A kill in between makes money or loses it."""

import json
import os
import signal

from confluent_kafka import Consumer, Producer, TopicPartition

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
        "enable.auto.commit": False,
    }
)
producer = Producer({"bootstrap.servers": SERVERS, "transactional.id": GROUP})
producer.init_transactions()
consumer.subscribe([SOURCE])
while True:
    signal.alarm(30)  # ends the job if a call never returns; a new start aborts its transaction
    records = [record for record in consumer.consume(100, timeout=0.2) if not record.error()]
    for record in records:
        debit, credit = postings(record.value())
        producer.begin_transaction()
        producer.produce(SINK, debit)
        producer.commit_transaction()
        producer.begin_transaction()
        producer.produce(SINK, credit)
        offsets = [TopicPartition(SOURCE, record.partition(), record.offset() + 1)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
        producer.commit_transaction()
