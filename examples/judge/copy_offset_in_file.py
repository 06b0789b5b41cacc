"""Copy wrongly: the records are in transactions, and the position is in a file.

A kill between the commit and the write to the file doubles the records of the transaction.
"""

import json
import os
import signal
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

SERVERS, GROUP = os.environ["KAFKA_BOOTSTRAP_SERVERS"], os.environ["GROUP"]
SOURCE, SINK = os.environ["SOURCE_TOPIC"], os.environ["SINK_TOPIC"]
FILE = Path(os.environ["CHECKPOINT_DIR"]) / "offsets.json"

producer = Producer({"bootstrap.servers": SERVERS, "transactional.id": GROUP})
producer.init_transactions()
consumer = Consumer(
    {
        "bootstrap.servers": SERVERS,
        "group.id": GROUP,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
    }
)
partitions = consumer.list_topics(SOURCE, timeout=10).topics[SOURCE].partitions
noted = json.loads(FILE.read_text()) if FILE.exists() else {}
consumer.assign([TopicPartition(SOURCE, each, noted.get(str(each), 0)) for each in partitions])
while True:
    signal.alarm(30)  # ends the job if a call never returns; a new start aborts its transaction
    records = [record for record in consumer.consume(100, timeout=0.2) if not record.error()]
    if records:
        producer.begin_transaction()
        for record in records:
            producer.produce(SINK, record.value(), record.key(), record.partition())
            noted[str(record.partition())] = record.offset() + 1
        producer.commit_transaction()
        new = FILE.with_suffix(".new")
        new.write_text(json.dumps(noted))
        new.replace(FILE)
