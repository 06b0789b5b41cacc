"""Transactional producers of librdkafka: get an epoch in the background, send rows until acknowledged, commit."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from exactly_once_kafka.deadline import SLICE, Deadline, QueryStopped, seconds_to_abort
from exactly_once_kafka.errors import Absence, OutcomeUnknown, Refusal, why_unknown
from exactly_once_kafka.kafka_rows import BatchRows, Tags, kafka_rows

# After this time, Kafka may have forgotten an epoch (transactional.id.expiration.ms), or closed the connections. For a
# query that was idle for minutes, the time that another epoch takes does not matter.
TOO_OLD = 300  # seconds
FIRST = 0.9  # share of the time for an epoch that `first` may take


class PendingProducer:
    """A producer whose `init_transactions` runs in the background and gets the newest epoch of its transactional id.

    `first` is called before that. Its deadline is shorter than that of `take`, so that `take` raises the error of
    `first`, and not its own timeout. `retire` is the producer of the last transaction, which is closed first.
    """

    def __init__(
        self, settings: dict[str, Any], retire: object = None, first: Callable[[Deadline], object] = lambda _: None
    ):
        self._settings, self._retired, self._first = settings, retire, first
        self._begin()

    @property
    def is_usable(self) -> bool:
        """Tell whether `take` may return the producer: the request has not failed, and is younger than TOO_OLD."""
        return self._error is None and time.monotonic() - self._begun < TOO_OLD

    def take(self, deadline: Deadline) -> Producer:
        """Wait for the producer and return it. Raises KafkaException, TimeoutError, QueryStopped, OutcomeUnknown.

        If the request failed in the background, it is tried once more. When `take` raises, it cancels the request, so
        that no late epoch fences newer producers.
        """
        try:
            return self._wait(deadline.restarted())
        except BaseException:
            self.stop_asking()
            raise

    def stop_asking(self) -> None:
        """Cancel the request in the background: a late epoch would fence the next run."""
        self._stopped_asking.set()

    def _wait(self, deadline: Deadline) -> Producer:
        said: Exception | None = None
        for last in (False, True):
            while self._thread.is_alive() and deadline.has_time():
                self._thread.join(SLICE)
            if self._producer is not None:
                return self._producer
            if self._error and (
                last or isinstance(self._error, OutcomeUnknown | QueryStopped) or not deadline.has_time()
            ):
                raise self._error
            if self._error:
                said = self._error
                self._begin()
        if said:
            raise said
        raise TimeoutError(f"no epoch was granted within {deadline.seconds:g} s: is the transaction coordinator up?")

    def _begin(self) -> None:
        self._stopped_asking = threading.Event()
        self._producer: Producer | None = None
        self._error: Exception | None = None
        self._begun = time.monotonic()
        self._thread = threading.Thread(target=self._prepare, name="pending-producer", daemon=True)
        self._thread.start()

    def _prepare(self) -> None:
        try:
            self._retired = None  # closes its connections, which may take a moment too
            seconds = min(float(self._settings["transaction.timeout.ms"]) / 1000, TOO_OLD)
            deadline = Deadline(seconds, self._stopped_asking.is_set, ask=0)
            refusal = Refusal()
            producer = Producer({**self._settings, "error_cb": refusal.note})  # connects while `first` runs
            self._first(Deadline(FIRST * seconds, self._stopped_asking.is_set, ask=0))
            deadline.has_time()
            # Resumed every 20 ms, because librdkafka would look again only after half a second.
            resumed(producer.init_transactions, 0.02, deadline, lambda: _raise_refusal(producer, refusal))
            self._producer = producer
        except Exception as error:
            # A traceback would keep the producer alive: it would repeat its request, and the epoch that it gets would
            # fence the next producer.
            error.__context__ = None
            self._error = error.with_traceback(None)


def commit(producer: Producer, deadline: Deadline) -> None:
    """Commit the open transaction. Raises KafkaException, QueryStopped."""
    resumed(producer.commit_transaction, SLICE, deadline.restarted())


@contextlib.contextmanager
def aborting_on_failure(abort: Callable[[float], object]) -> Iterator[None]:
    """Abort the open transaction if the block fails, so that readers need not wait for its timeout.

    `abort` is called with the seconds that it may take. If it fails, the next epoch aborts the transaction.
    """
    try:
        yield
    except BaseException as error:
        with contextlib.suppress(KafkaException, TimeoutError):
            abort(seconds_to_abort(error))
        raise


def _raise_refusal(producer: Producer, refusal: Refusal) -> None:
    producer.poll(0)  # calls error_cb
    if refusal.error:
        raise KafkaException(refusal.error)


def resumed(
    call: Callable[[float], object], seconds: float, deadline: Deadline, look: Callable[[], object] = lambda: None
) -> None:
    """Repeat a transactional call of librdkafka, which resumes it after a timeout, until it has an answer.

    `seconds` is how long one call may wait. `look` is called between two calls, and may raise. Raises KafkaException,
    also when the deadline is over, and QueryStopped.
    """
    while True:
        try:
            call(seconds)
            return
        except KafkaException as error:
            if not error.args[0].retriable() or not deadline.has_time():
                raise
            look()


# The client waits in slices of 0.2 s and runs callbacks in each slice, even after a callback has raised: two errors at
# once make Python raise SystemError. A shorter wait has only one slice.
ONE_SLICE = 0.1  # seconds


def send_rows(
    data: BatchRows,
    producer: Producer,
    deadline: Deadline,
    tags: Tags = (),
    after_first: Callable[[], object] | None = None,
) -> int:
    """Produce every row, wait until all are acknowledged, and return how many there were.

    `tags` are headers that every record gets. `after_first` is called once, when the first rows are acknowledged, or at
    the latest when all are. Raises KafkaException for a row that Kafka did not take, TimeoutError for one not
    acknowledged within the seconds of `deadline` after the last was produced, ValueError for one that cannot be a
    record, QueryStopped.
    """
    failures: list[KafkaError] = []

    def failed(error: KafkaError | None, record: Message) -> None:
        if error:
            failures.append(_at(record.topic(), error))

    count = 0
    with contextlib.closing(data):
        for records in kafka_rows(data, data.topic, tags):
            for topic_of_row, value, key, partition, headers in records:
                count += 1
                # The client calls back only for failures (a callback for each row would cost more than the row). So
                # the length of its queue tells when the first rows are acknowledged.
                if after_first and len(producer) < count - 1:
                    after_first()
                    after_first = None
                while True:
                    try:
                        # By position, because names would make the call a third slower. The arguments behind
                        # `partition` are on_delivery, its alias, timestamp.
                        producer.produce(topic_of_row, value, key, partition, failed, None, 0, headers)
                        break
                    except BufferError:  # the queue is full: wait until some rows have left it
                        producer.poll(ONE_SLICE)
                        _raise_first(failures)
                        deadline.has_time()
                    except KafkaException as error:
                        raise KafkaException(
                            _at(topic_of_row, why_unknown(producer, topic_of_row, error.args[0]))
                        ) from error
            producer.poll(0)  # calls `failed`: a failure is raised before Spark has computed all rows
            _raise_first(failures)
    acknowledged(producer, count, failures, deadline, [data.topic] if data.topic else [])
    if count and after_first:
        after_first()
    return count


def acknowledged(
    producer: Producer, count: int, failures: list[KafkaError], deadline: Deadline, topics: Collection[str]
) -> None:
    """Wait until the last of `count` records is acknowledged.

    Raises KafkaException, also if one of `topics` is deleted meanwhile, TimeoutError, QueryStopped.
    """
    deadline, absence = deadline.restarted(), Absence(producer, topics)
    while unsent := producer.flush(ONE_SLICE):
        _raise_first(failures)  # one failure fails the batch; the rows after it may never be acknowledged
        absence.look()
        if not deadline.has_time():
            raise TimeoutError(f"{unsent} of {count} records were not acknowledged within {deadline.seconds:g} s")
    _raise_first(failures)


def _at(topic: object, error: KafkaError) -> KafkaError:
    return KafkaError(error.code(), f"{error.str()}, for topic {topic!r}")


def _raise_first(failures: list[KafkaError]) -> None:
    if failures:
        raise KafkaException(failures[0])
