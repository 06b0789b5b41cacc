"""Transactional producers with an epoch of their own, prepared in the background.

A Kafka from 4.0 on can give a producer a new epoch with every commit (KIP-890), but librdkafka does not ask for that
yet (its issue 5423). Until then, a new epoch takes a new producer.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import KafkaException, Producer

from exactly_once_kafka.errors import Undecidable
from exactly_once_kafka.marker_topic import Refusal
from exactly_once_kafka.patience import SLICE, Patience, QueryStopped

# An epoch that was prepared so long ago may be forgotten by Kafka (transactional.id.expiration.ms), or its connections
# be closed. Another one costs nothing that matters to a query that rests for minutes.
TOO_OLD = 300  # seconds
FIRST = 0.9  # of the time that there is for an epoch


class PendingProducer:
    """A producer whose `init_transactions` runs in the background, and so has the newest epoch of its id.

    `first` is called before it, and has most of the time: whoever waits is to hear why it failed.
    """

    few_rows = False  # of the next batch nothing is known

    def __init__(
        self, settings: dict[str, Any], retire: object = None, first: Callable[[Patience], object] = lambda _: None
    ):
        self._settings, self._retired, self._first = settings, retire, first
        self._begin()

    @property
    def promising(self) -> bool:
        """Tell whether the epoch is granted or may still be: it has not failed, and is not too old to be trusted."""
        return self._error is None and time.monotonic() - self._begun < TOO_OLD

    def take(self, patience: Patience) -> Producer:
        """Wait for the producer and return it. Raises KafkaException, TimeoutError, QueryStopped, Undecidable.

        What failed in the background may be over by now, so it is tried once more. Who gives up waiting leaves nothing
        behind that could get an epoch later, and fence those that came since.
        """
        try:
            return self._wait(patience.anew())
        except BaseException:
            self.give_up()
            raise

    def give_up(self) -> None:
        """Have nobody ask in the background any more: an epoch that came later would fence a successor's."""
        self._given_up.set()

    def _wait(self, patience: Patience) -> Producer:
        said: Exception | None = None
        for last in (False, True):
            while self._thread.is_alive() and patience.lasts():
                self._thread.join(SLICE)
            if self._producer is not None:
                return self._producer
            if self._error and (last or isinstance(self._error, Undecidable) or not patience.lasts()):
                raise self._error
            if self._error:
                said = self._error
                self._begin()
        if said:
            raise said
        raise TimeoutError(f"no epoch was granted within {patience.seconds:g} s: is the transaction coordinator up?")

    def _begin(self) -> None:
        self._given_up = threading.Event()
        self._producer: Producer | None = None
        self._error: Exception | None = None
        self._begun = time.monotonic()
        self._thread = threading.Thread(target=self._prepare, name="pending-producer", daemon=True)
        self._thread.start()

    def _prepare(self) -> None:
        try:
            self._retired = None  # closes its connections, which may take a moment too
            seconds = min(float(self._settings["transaction.timeout.ms"]) / 1000, TOO_OLD)
            patience = Patience(seconds, self._given_up.is_set, ask=0)
            refusal = Refusal()
            producer = Producer({**self._settings, "error_cb": refusal.note})  # connects meanwhile
            self._first(Patience(FIRST * seconds, self._given_up.is_set, ask=0))
            patience.lasts()
            # Resumed every 20 ms, because librdkafka would look again only after half a second.
            resumed(producer.init_transactions, 0.02, patience, lambda: _raise_refusal(producer, refusal))
            self._producer = producer
        except Exception as error:
            # Tracebacks would keep the producer, which goes on asking: its epoch would fence the next one.
            error.__context__ = None
            self._error = error.with_traceback(None)


def commit(producer: Producer, patience: Patience) -> None:
    """Commit the open transaction. Raises KafkaException, QueryStopped."""
    resumed(producer.commit_transaction, SLICE, patience.anew())


@contextlib.contextmanager
def aborting_on_failure(abort: Callable[[float], object]) -> Iterator[None]:
    """Abort the open transaction if the block fails, so that readers need not wait for its timeout.

    `abort` is given the seconds that it may take. Its failure is harmless: the next epoch does it. Nobody waits for it
    after a query that was stopped.
    """
    try:
        yield
    except BaseException as error:
        with contextlib.suppress(KafkaException, TimeoutError):
            abort(SLICE if isinstance(error, QueryStopped) else 5)
        raise


def _raise_refusal(producer: Producer, refusal: Refusal) -> None:
    producer.poll(0)  # tells error_cb
    if refusal.error:
        raise KafkaException(refusal.error)


def resumed(
    call: Callable[[float], object], seconds: float, patience: Patience, look: Callable[[], object] = lambda: None
) -> None:
    """Make a transactional call of librdkafka's, which may be resumed after a timeout, until it has an answer.

    `look` is called in between, and may raise.
    """
    while True:
        try:
            call(seconds)
            return
        except KafkaException as error:
            if not error.args[0].retriable() or not patience.lasts():
                raise
            look()
