"""The source: replays accesses into a Kafka topic, one record each, keyed by IP."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, Message, Producer

from labs.equipment.topics import end_offsets
from labs.pipeline.log.access_log import Access
from labs.pipeline.records import CLOSING_DELAY_MS, CLOSING_IP, SOURCE_TOPIC, source_value


class SourceFailed(RuntimeError):
    """The source topic could not be written."""


@dataclass
class Replay:
    """What became of the accesses: how many were sent, how many of those the broker acknowledged."""

    sent: int = 0
    acknowledged: int = 0
    last_time_ms: int = 0
    errors: list[str] = field(default_factory=list)


def replay(
    accesses: Iterable[Access],
    bootstrap_servers: str,
    topic: str = SOURCE_TOPIC,
    progress: Callable[[int], object] = lambda sent: None,
    **options: str | int,
) -> Replay:
    """Send each access as a source record, in the order given, and wait for every acknowledgement.

    `progress` is called with the number sent every 10,000 records; `options` are producer settings with `_`
    for `.`. Raises SourceFailed when the topic cannot be written; single failures are listed in the result.
    """
    report = Replay()

    def failed(error: KafkaError | None, message: Message) -> None:
        report.errors.append(str(error))

    settings: dict[str, str | int] = {"linger.ms": 50, "queue.buffering.max.messages": 200_000}
    settings |= {key.replace("_", "."): value for key, value in options.items()}
    producer = source_producer(bootstrap_servers, **settings)
    produce, poll = producer.produce, producer.poll
    sent = last = 0
    try:
        for sent, (time_ms, ip) in enumerate(accesses, start=1):
            if time_ms > last:
                last = time_ms
            try:
                produce(topic, source_value(time_ms, ip), ip, on_delivery=failed)
            except BufferError:
                poll(1)
                produce(topic, source_value(time_ms, ip), ip, on_delivery=failed)
            if not sent % 10_000:
                poll(0)
                progress(sent)
                if len(report.errors) >= 1000:
                    break
    finally:
        unsent = producer.flush(60)
    report.sent, report.last_time_ms = sent, last
    report.acknowledged = sent - len(report.errors) - unsent
    progress(sent)
    if sent and not report.acknowledged:
        raise SourceFailed(
            f"none of {sent:,} records reached {topic} at {bootstrap_servers}: "
            f"{report.errors[0] if report.errors else 'no broker answered within 60 s'}"
        )
    return report


def close_windows(last_time_ms: int, bootstrap_servers: str, topic: str = SOURCE_TOPIC) -> int:
    """Send each partition one closing record, late enough for every window up to `last_time_ms` to be final.

    Call it after the accesses are acknowledged, of which none is later than LATEST_ACCESS_MS. Returns the closing
    record's time in epoch millis.
    """
    time_ms = last_time_ms + CLOSING_DELAY_MS
    producer = source_producer(bootstrap_servers)
    for partition in end_offsets(bootstrap_servers, topic):
        producer.produce(topic, source_value(time_ms, CLOSING_IP), CLOSING_IP, partition)
    if producer.flush(60):
        raise SourceFailed(f"the closing records did not reach {topic} at {bootstrap_servers} within 60 s")
    return time_ms


def source_producer(bootstrap_servers: str, **settings: str | int) -> Producer:
    """Return an idempotent producer that calls back for failed records only."""
    return Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "delivery.report.only.error": True,
            # Left to connect only where it has to, it was seen to stay away from a single broker that had shut down.
            "enable.sparse.connections": False,
            "log_level": 0,
            **settings,
        }
    )
