"""Step 4's bulk: every row of a micro-batch goes to Kafka inside the open transaction, and is acknowledged."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from exactly_once_kafka.cause import Absence, why_unknown
from exactly_once_kafka.kafka_rows import KafkaBatches, Tags, kafka_rows
from exactly_once_kafka.patience import Patience

# The client waits in slices of 0.2 s and serves callbacks in each, even after one of them has failed; then Python
# has two errors at once and raises SystemError. A shorter wait is one slice.
ONE_SLICE = 0.1  # seconds


def send_rows(
    rows: KafkaBatches,
    producer: Producer,
    patience: Patience,
    tags: Tags = (),
    after_first: Callable[[], object] | None = None,
) -> int:
    """Produce every row, wait until all are acknowledged, and return how many there were.

    `tags` are headers that every record gets; `after_first` is called when rows are acknowledged for the first
    time, be it all of them. Raises KafkaException for a row that Kafka did not take, TimeoutError for one not
    acknowledged in all the `patience` there is after the last was produced, ValueError for one that cannot be a record,
    QueryStopped.
    """
    failures: list[KafkaError] = []

    def failed(error: KafkaError | None, record: Message) -> None:
        if error:
            failures.append(_at(record.topic(), error))

    count = 0
    with contextlib.closing(rows):
        for batch in kafka_rows(rows, rows.topic, tags):
            for topic_of_row, value, key, partition, headers in batch:
                count += 1
                # Only failures are reported (a callback for each row would cost more than the row), so that what
                # is no longer in the queue must have been acknowledged.
                if after_first and len(producer) < count - 1:
                    after_first()
                    after_first = None
                while True:
                    try:
                        # By position, because names would make it a third slower: on_delivery, its alias, timestamp.
                        producer.produce(topic_of_row, value, key, partition, failed, None, 0, headers)
                        break
                    except BufferError:  # the queue is full: let some of it go
                        producer.poll(ONE_SLICE)
                        _raise_first(failures)
                        patience.lasts()
                    except KafkaException as error:
                        raise KafkaException(
                            _at(topic_of_row, why_unknown(producer, topic_of_row, error.args[0]))
                        ) from error
            producer.poll(0)  # hears of a failure before the rest is computed
            _raise_first(failures)
    acknowledged(producer, count, failures, patience, [rows.topic] if rows.topic else [])
    if count and after_first:
        after_first()
    return count


def acknowledged(
    producer: Producer, count: int, failures: list[KafkaError], patience: Patience, topics: Collection[str]
) -> None:
    """Wait until the last of `count` records is acknowledged, as long as the topics are there.

    Raises KafkaException, TimeoutError, QueryStopped.
    """
    patience, absence = patience.anew(), Absence(producer, topics)
    while unsent := producer.flush(ONE_SLICE):
        _raise_first(failures)  # one failure decides the batch; the rows behind it could wait in vain
        absence.look()
        if not patience.lasts():
            raise TimeoutError(f"{unsent} of {count} records were not acknowledged within {patience.seconds:g} s")
    _raise_first(failures)


def _at(topic: object, error: KafkaError) -> KafkaError:
    return KafkaError(error.code(), f"{error.str()}, for topic {topic!r}")


def _raise_first(failures: list[KafkaError]) -> None:
    if failures:
        raise KafkaException(failures[0])
