"""Copy wrongly with aiokafka: an idempotent producer, and offsets that are committed after each batch.

Idempotence removes what the client itself sends twice. A new process is a new producer: a kill doubles a batch.
"""

import asyncio
import os

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

SERVERS, GROUP = os.environ["KAFKA_BOOTSTRAP_SERVERS"], os.environ["GROUP"]
SOURCE, SINK = os.environ["SOURCE_TOPIC"], os.environ["SINK_TOPIC"]


async def main() -> None:
    consumer = AIOKafkaConsumer(
        SOURCE,
        bootstrap_servers=SERVERS,
        group_id=GROUP,
        group_instance_id=GROUP,  # a restarted job gets its partitions at once, not after session_timeout_ms
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        enable_auto_commit=False,
    )
    producer = AIOKafkaProducer(bootstrap_servers=SERVERS, enable_idempotence=True)
    await producer.start()
    await consumer.start()
    while True:
        fetched = await consumer.getmany(timeout_ms=200)
        for partition, records in fetched.items():
            for record in records:
                await producer.send(SINK, record.value, record.key, partition=partition.partition)
        if fetched:
            await producer.flush()
            await consumer.commit()


asyncio.run(main())
