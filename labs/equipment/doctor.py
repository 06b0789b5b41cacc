"""Tell whether this machine can run the lab: what was found, and the cure for what is missing.

The last two checks send records through a real broker in a transaction, and read them again with Spark.
`pandas.DataFrame(checks())` makes a table of the checks.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Iterator

from confluent_kafka import Consumer, Producer, TopicPartition

from labs.equipment.broker import open_broker
from labs.equipment.check import Check, CheckFailed, Step, follow
from labs.equipment.java import REPEAT, innermost_cause
from labs.equipment.machine import MACHINE
from labs.equipment.spark import SparkError, given_up_after, spark_session
from labs.equipment.topics import create_topic, remove_topics

RECORDS = 1000
LONGEST = 120  # seconds until Spark has read them


def bench(stack: contextlib.ExitStack) -> list[Step]:
    """Return the steps that use a broker and Spark; `stack` closes what they opened."""
    topic = f"labs-doctor-{uuid.uuid4().hex[:8]}"
    sent = {b"%d" % n for n in range(RECORDS)}
    servers = ""

    def broker() -> str:
        nonlocal servers
        before = time.monotonic()
        kafka = open_broker()
        stack.enter_context(kafka)
        started = time.monotonic()
        servers = kafka.bootstrap_servers
        create_topic(servers, topic, partitions=1, replication=kafka.replication)
        if kafka.external:
            stack.callback(remove_topics, servers, topic)
        produce(servers, topic, sent)
        _expect(sent, _consume(servers, topic, len(sent)))
        took = time.monotonic() - started
        start = "that of KAFKA_BOOTSTRAP_SERVERS" if kafka.external else f"started in {started - before:.1f} s"
        return f"{start}; a transaction of {RECORDS:,} records written and read back in {took:.1f} s"

    def spark() -> str:
        before = time.monotonic()
        try:
            session = spark_session()
            started = time.monotonic()
            options = {
                "kafka.bootstrap.servers": servers,
                "subscribe": topic,
                "kafka.isolation.level": "read_committed",
            }
            with given_up_after(LONGEST):
                rows = session.read.format("kafka").options(**options).load().select("value").collect()
        except SparkError as error:
            raise CheckFailed(f"{error.what}\n{error.what_to_do}") from error
        except Exception as error:
            raise CheckFailed(f"{innermost_cause(str(error)) or repr(error)}\n{REPEAT}") from error
        _expect(sent, [bytes(row.value) for row in rows])
        took = time.monotonic() - started
        return f"{session.version}, session in {started - before:.1f} s; the same records read in {took:.1f} s"

    return [
        Step("Broker", broker, _unset("KAFKA_BOOTSTRAP_SERVERS", "a broker of its own"), ("Java", "Jars", "Ports")),
        Step("Spark", spark, _unset("SPARK_MASTER", "this machine", ""), ("Connector", "Broker")),  # it has its own
    ]


def _unset(variable: str, otherwise: str, cure: str = REPEAT) -> str:
    if variable in os.environ:
        return f"Check {variable}, or unset it: then the lab uses {otherwise}"
    return cure


def produce(servers: str, topic: str, values: set[bytes]) -> None:
    """Write the values to the topic in one transaction. Raises KafkaException."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    producer.commit_transaction(30)


def _consume(servers: str, topic: str, count: int) -> list[bytes]:
    settings = {
        "bootstrap.servers": servers,
        "group.id": topic,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "log_level": 0,
    }
    consumer = Consumer(settings)
    values: list[bytes] = []
    deadline = time.monotonic() + 30
    with contextlib.closing(consumer):
        consumer.assign([TopicPartition(topic, 0, 0)])
        while len(values) < count and time.monotonic() < deadline:
            values += [message.value() or b"" for message in consumer.consume(count, 0.2) if not message.error()]
    return values


def _expect(sent: set[bytes], read: list[bytes]) -> None:
    if len(read) != len(sent) or set(read) != sent:
        found = f"{len(sent):,} records were written and {len(set(read) & sent):,} of them read, in {len(read):,}"
        raise CheckFailed(f"{found}\n{REPEAT}")


__all__ = ["Check", "checks"]


def checks(starting: Callable[[str], object] = lambda name: None) -> Iterator[Check]:
    """Check one thing after the other; `starting` is called with the name of each before it is checked."""
    with contextlib.ExitStack() as stack:
        yield from follow([*MACHINE, *bench(stack)], starting)
