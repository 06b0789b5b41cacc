"""A driver of a replay: it carries out the steps of its batches on the real Kafka, with a client of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from labs.pipeline.records import WINDOW_MS, result_value
from labs.schedules.replay.checkpoint import SmallCheckpoint, Taken
from labs.schedules.replay.stepwise import Ended, serve

# Kafka's ways to say that a younger producer has the name.
FENCED = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)
PATIENCE = 60  # seconds
ONE_SLICE = 0.1  # seconds; a longer wait is several of the client's, in which two errors at once end in a SystemError
Headers = list[tuple[str, str | bytes | None]]  # as the client wants them


class Driver:
    """Runs `settings["program"]`, batch after batch, from `batch` on."""

    def __init__(self, settings: dict[str, Any]):
        self._settings = settings
        self._program: list[str] = settings["program"]
        self._checkpoint = SmallCheckpoint(settings["checkpoint"])
        self._batch, self._step, self._row = settings["batch"], 0, 0
        self._fresh, self._computed, self._has_epoch, self._attempt = True, False, False, 0
        self._kafka = {"bootstrap.servers": settings["bootstrap_servers"], "client.id": settings["client_id"]}
        self._kafka |= {"log_level": 0}
        self._producer = self._new_producer()
        self._consumer: Consumer | None = None

    @property
    def finished(self) -> bool:
        return self._batch >= self._settings["batches"]

    def upcoming(self) -> dict[str, Any]:
        """Say which step comes next."""
        step = self._program[self._step]
        if step == "fence" and self._settings["keeps_epoch"] and self._has_epoch:
            self._step += 1
            step = self._program[self._step]
        if step == "rows":
            return {"action": "row", "batch": self._batch, "row": self._begin + self._row}
        return {"action": step, "batch": self._batch}

    def take(self, step: dict[str, Any]) -> str:
        """Take the step, and return what came back. Raises Ended after the last answer of all."""
        actions: dict[str, Callable[[], str]] = {
            "plan": self._plan,
            "fence": self._fence,
            "read marker": self._read_marker,
            "row": self._send_row,
            "marker": self._send_marker,
            "commit": self._commit,
            "note": self._note,
        }
        try:
            return actions[step["action"]]()
        except Taken as taken:
            raise Ended(str(taken)) from None
        except KafkaException as error:
            kafka_error = error.args[0]
            raise Ended("fenced" if kafka_error.code() in FENCED else kafka_error.str()) from None

    # The steps

    def _plan(self) -> str:
        batch, planned = self._batch, self._checkpoint.planned
        if batch and not self._checkpoint.has_state(batch - 1):
            raise Ended("the state of the batch before is missing")
        again = self._fresh and batch < len(planned)
        if not again:
            rows = self._settings["rows"]
            self._checkpoint.plan(batch, rows, rows * self._settings["batches"])
        self._fresh = False
        self._attempt += 1
        self._go_on()
        return "as planned before" if again else ""

    def _fence(self) -> str:
        if self._has_epoch:
            self._producer = self._new_producer()  # a client asks but once for its epoch
        self._producer.init_transactions(PATIENCE)
        self._has_epoch = True
        self._producer.begin_transaction()
        self._go_on()
        return "ok"

    def _read_marker(self) -> str:
        marker = self._last_marker()
        batch, end = self._batch, self._end
        done, its_end = marker or (-1, 0)
        if done == batch and (its_end == end or not self._settings["marker_says_plan"]):
            self._step = self._program.index("note")
            self._computed = self._settings["drains"]
        elif done == batch - 1:
            self._go_on()
        else:
            raise Ended(f"batch {done}" if marker else "none")
        return f"batch {done}" if marker else "none"

    def _send_row(self) -> str:
        record, last = self._begin + self._row, self._begin + self._row + 1 == self._end
        headers: Headers = [
            ("batch_id", str(self._batch)),
            ("attempt", f"{self._settings['client_id']} {self._attempt}"),
        ]
        if last or "commit" in self._program:  # the last may never be seen, and half a transaction is none
            headers.append(("batch_rows", str(self._end - self._begin)))
        self._send(self._settings["topic"], result_value(record * WINDOW_MS, f"record {record}", 1), headers)
        self._row += 1
        if last:
            self._row = 0
            self._computed = True
            self._go_on()
        return "ok"

    def _send_marker(self) -> str:
        self._send(self._settings["marker_topic"], json.dumps([self._batch, self._end]).encode(), [])
        self._go_on()
        return "ok"

    def _commit(self) -> str:
        self._producer.commit_transaction(PATIENCE)
        self._producer.begin_transaction()
        self._go_on()
        return "ok"

    def _note(self) -> str:
        self._checkpoint.note(self._batch, self._computed)
        self._go_on()
        return ""

    # What they need

    @property
    def _begin(self) -> int:
        return self._checkpoint.planned[self._batch - 1] if self._batch else 0

    @property
    def _end(self) -> int:
        return self._checkpoint.planned[self._batch]

    def _go_on(self) -> None:
        self._step += 1
        if self._step == len(self._program):
            self._batch, self._step, self._fresh, self._computed = self._batch + 1, 0, False, False

    def _new_producer(self) -> Producer:
        settings = {
            **self._kafka,
            "error_cb": lambda _: None,  # a fatal error is then told by the call that it befalls, and by no other
            "acks": "all",
            "linger.ms": 0,
            "max.in.flight": 1,
            "enable.idempotence": self._settings["idempotent"],
            "socket.timeout.ms": 1000 * PATIENCE,
            "message.timeout.ms": 1000 * PATIENCE,
            "enable.sparse.connections": False,  # or an epoch waits for a connection, half a second
        }
        if "commit" in self._program:
            settings["transactional.id"] = self._settings["name"]
            timeout = self._settings["transaction_timeout_ms"]
            settings["transaction.timeout.ms"] = timeout
            settings["message.timeout.ms"] = min(1000 * PATIENCE, timeout)
            settings["socket.timeout.ms"] = min(1000 * PATIENCE, timeout - 200)  # the client demands that
        return Producer(settings)

    def _send(self, topic: str, value: bytes, headers: Headers) -> None:
        failures: list[KafkaError] = []
        self._producer.produce(
            topic,
            value,
            key=self._settings["name"],
            partition=0,
            headers=headers,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
        patience = int(PATIENCE / ONE_SLICE)
        while self._producer.flush(ONE_SLICE) and not failures:
            patience -= 1
            if not patience:
                raise Ended("no answer")
        if failures:
            raise KafkaException(failures[0])

    def _last_marker(self) -> tuple[int, int] | None:
        """Return what was committed last, as far as it is decided by now."""
        consumer = self._consumer = self._consumer or Consumer(
            {
                **self._kafka,
                "group.id": self._settings["name"],
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
            }
        )
        consumer.assign([TopicPartition(self._settings["marker_topic"], 0, OFFSET_BEGINNING)])
        last = None
        while True:
            message = consumer.poll(PATIENCE)
            if message is None:
                raise Ended("no answer")
            error = message.error()
            if error is None:
                batch, end = json.loads(message.value() or b"")
                last = batch, end
            elif error.code() == KafkaError._PARTITION_EOF:
                return last
            elif not error.retriable():
                raise KafkaException(error)


if __name__ == "__main__":
    serve(Driver)
