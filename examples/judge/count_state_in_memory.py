"""Count wrongly: results and offset are in one transaction, and the offset is that of the next record to read.

The counts of the open windows are only in memory. A kill loses them, and the windows come out with less.
"""

import json
import os
import signal

from confluent_kafka import Consumer, Producer

SERVERS, GROUP = os.environ["KAFKA_BOOTSTRAP_SERVERS"], os.environ["GROUP"]
SOURCE, SINK = os.environ["SOURCE_TOPIC"], os.environ["SINK_TOPIC"]
WINDOW_MS = LATENESS_MS = 5_000

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
latest = 0
counts: dict[int, dict[str, int]] = {}  # start of a window -> IP -> requests
while True:
    signal.alarm(30)  # ends the job if a call never returns; a new start aborts its transaction
    for record in consumer.consume(500, timeout=0.2):
        if record.error():
            continue
        text, ip = record.value().decode().split(",")
        latest = max(latest, int(text))
        if ip != "-":  # the closing record only moves the event time on
            window = counts.setdefault(int(text) // WINDOW_MS * WINDOW_MS, {})
            window[ip] = window.get(ip, 0) + 1
    done = sorted(start for start in counts if start + WINDOW_MS + LATENESS_MS <= latest)
    if done:
        producer.begin_transaction()
        for start in done:
            for ip, count in counts.pop(start).items():
                producer.produce(SINK, json.dumps({"window_start": start, "ip": ip, "count": count}))
        offsets = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
        producer.commit_transaction()
