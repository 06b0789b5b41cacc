"""Count exactly once: the results and the offset of the group are in one transaction.

A window's results are written when the event time is past its end and the lateness. The group's offset is that of the
first record of an open window, so that a restarted job reads the open windows again; the metadata of the offset says
up to when windows are closed.
"""

import json
import os
import signal

from confluent_kafka import Consumer, Producer, TopicPartition

SERVERS, GROUP = os.environ["KAFKA_BOOTSTRAP_SERVERS"], os.environ["GROUP"]
WINDOW_MS = LATENESS_MS = 5_000
SOURCE, SINK = TopicPartition(os.environ["SOURCE_TOPIC"], 0), os.environ["SINK_TOPIC"]

settings = {"bootstrap.servers": SERVERS, "group.id": GROUP, "enable.auto.commit": False}
consumer = Consumer({**settings, "isolation.level": "read_committed"})
producer = Producer({"bootstrap.servers": SERVERS, "transactional.id": GROUP})
producer.init_transactions()
[noted] = consumer.committed([SOURCE])
consumer.assign([TopicPartition(SOURCE.topic, 0, max(noted.offset, 0))])
closed, latest = int(noted.metadata or 0), 0  # windows that begin before `closed` are closed
counts: dict[int, dict[str, int]] = {}  # start of a window -> IP -> requests
first: dict[int, int] = {}  # start of a window -> the offset of its first record
while True:
    signal.alarm(30)  # ends the job if a call never returns; a new start aborts its transaction
    position = None
    for record in consumer.consume(500, timeout=0.2):
        if record.error():
            continue
        text, ip = record.value().decode().split(",")
        start, position = int(text) // WINDOW_MS * WINDOW_MS, record.offset() + 1
        latest = max(latest, int(text))
        if start >= closed and ip != "-":  # "-" is the closing record: it only moves the event time on
            counts.setdefault(start, {}).setdefault(ip, 0)
            counts[start][ip] += 1
            first.setdefault(start, record.offset())
    done = sorted(start for start in counts if start + WINDOW_MS + LATENESS_MS <= latest)
    if not done:
        continue
    producer.begin_transaction()
    for start in done:
        first.pop(start)
        for ip, count in counts.pop(start).items():
            producer.produce(SINK, json.dumps({"window_start": start, "ip": ip, "count": count}))
    closed = done[-1] + WINDOW_MS
    offset = TopicPartition(SOURCE.topic, 0, min([position, *first.values()]), str(closed))
    producer.send_offsets_to_transaction([offset], consumer.consumer_group_metadata())
    producer.commit_transaction()
