"""Copy exactly once with aiokafka: the records and the offsets of the group are in one transaction."""

import asyncio
import os
import signal

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
    producer = AIOKafkaProducer(bootstrap_servers=SERVERS, transactional_id=GROUP)
    await producer.start()  # aborts the transaction of the killed job, before the consumer asks for its offsets
    await consumer.start()
    while True:
        signal.alarm(30)  # ends the job if a call never returns; a new start aborts its transaction
        fetched = await consumer.getmany(timeout_ms=200)
        if fetched:
            async with producer.transaction():
                for partition, records in fetched.items():
                    for record in records:
                        await producer.send(SINK, record.value, record.key, partition=partition.partition)
                offsets = {partition: records[-1].offset + 1 for partition, records in fetched.items()}
                await producer.send_offsets_to_transaction(offsets, GROUP)


asyncio.run(main())
