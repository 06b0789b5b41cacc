"""The programs of a replay's drivers, each a process of its own on the real Kafka: `python -m … KIND SOCKET SETTINGS`.

    sink        runs the protocol of a stage, the generator that the model runs
    two phases  a job that commits in two phases by hand
    consumer    a consumer of results, which commits its offset

The sink's client sends one request at a time. It writes no note about the marker's topic, and it cannot abort.
"""

from __future__ import annotations

import json
import socket
import sys
from threading import Thread
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from exactly_once_kafka.protocol import Batch, Marker, Step, next_step
from labs.pipeline.records import WINDOW_MS, result_value
from labs.schedules.replay.gates import (
    Ended,
    GatedTransport,
    Gates,
    Program,
    SmallCheckpoint,
    plan_up_to,
    planned_batches,
    protocol_named,
    serve,
)

if TYPE_CHECKING:
    from labs.pipeline.two_phase.prepared import PreparedTransaction, PreparingProducer

PATIENCE = 60  # seconds
# Seconds. The client waits in slices of 0.2 s and runs callbacks in each, even after a callback has raised: two errors
# at once make Python raise SystemError. A wait of this length has only one slice.
ONE_SLICE = 0.1
Headers = list[tuple[str, str | bytes | None]]  # as the client wants them


def publish(settings: dict[str, Any], gates: Gates) -> None:
    """Run `settings["protocol"]`, batch after batch."""
    checkpoint, protocol = SmallCheckpoint(settings["checkpoint"]), protocol_named(settings["protocol"])
    transport = PlainTransport(settings, gates)
    for batch in planned_batches(settings, gates, checkpoint):
        transport.start(batch, checkpoint.records(batch.batch_id))
        gated = GatedTransport(transport, gates, checkpoint, batch.batch_id, lambda: transport.asking)
        steps, answer = protocol(batch, transport.has_epoch), None
        while step := next_step(steps, answer):
            answer = gated.take(step)
        if not gated.noted:
            gated.note()


def send(producer: Producer, topic: str, value: bytes, **more: Any) -> None:
    """Send one record, and wait until it is acknowledged. Raises KafkaException, and Ended if no answer comes."""
    failures: list[KafkaError] = []
    producer.produce(
        topic,
        value,
        partition=0,
        on_delivery=lambda error, _: failures.append(error) if error else None,
        **more,
    )
    patience = int(PATIENCE / ONE_SLICE)
    while producer.flush(ONE_SLICE) and not failures:
        patience -= 1
        if not patience:
            raise Ended("no answer")
    if failures:
        raise KafkaException(failures[0])


class Asking(Thread):
    """Asks for an epoch in the background. `join` raises KafkaException if Kafka has refused it."""

    def __init__(self, transport: PlainTransport):
        super().__init__(daemon=True)
        self._transport, self._failure = transport, list[KafkaException]()
        self.start()

    def run(self) -> None:
        try:
            self._transport.fence()
        except KafkaException as error:
            self._failure.append(error)

    def join(self, timeout: float | None = None) -> None:
        super().join(timeout)
        if self._failure:
            raise self._failure[0]


class PlainTransport:
    """Takes the steps of a batch with a producer, which has a transactional id if the stage has transactions.

    A step raises KafkaException for what Kafka refuses, and Ended if no answer comes.
    """

    def __init__(self, settings: dict[str, Any], gates: Gates):
        self._settings, self._gates, self._attempt = settings, gates, 0
        self._connection = {
            "bootstrap.servers": settings["bootstrap_servers"],
            "client.id": settings["client_id"],
            "log_level": 0,
        }
        self._producer, self.has_epoch = self._new_producer(), False
        self.asking: Asking | None = None
        self._consumer: Consumer | None = None

    def start(self, batch: Batch, records: range) -> None:
        """Take note of the batch whose steps come next."""
        self._batch, self._records, self._attempt = batch, records, self._attempt + 1

    def take(self, step: Step) -> Any:
        """Take a step, under the epoch that was asked for ahead, if one was."""
        if self.asking and step != "drain":
            self.asking.join()
            self.asking = None
        return getattr(self, step.replace(" ", "_"))()

    def fence(self) -> None:
        if self.has_epoch:
            self._producer = self._new_producer()  # a client asks for an epoch only once
        self._producer.init_transactions(PATIENCE)
        self.has_epoch = True
        self._producer.begin_transaction()

    def next_epoch(self) -> None:
        self.asking = Asking(self)

    def rows(self) -> bool:
        rows = ("batch_rows", str(len(self._records)))
        for record in self._records:
            if record > self._records.start:
                self._gates.gate("row", self._batch.batch_id, record)
            headers: Headers = [
                ("batch_id", str(self._batch.batch_id)),
                ("attempt", f"{self._settings['client_id']} {self._attempt}"),
            ]
            # Without a transaction the last record may never come, so the other records do not say how many there are.
            headers += [rows] if self._settings["transactional"] or record + 1 == self._records.stop else []
            result = result_value(record * WINDOW_MS, f"record {record}", 1)
            send(self._producer, self._settings["topic"], result, key=self._settings["name"], headers=headers)
            self._gates.answer = "ok"
        return True

    def marker(self) -> None:
        marker = json.dumps([self._batch.batch_id, self._records.stop]).encode()
        send(self._producer, self._settings["marker_topic"], marker, key=self._settings["name"])

    def commit(self) -> None:
        self._producer.commit_transaction(PATIENCE)
        self._producer.begin_transaction()

    def abort(self) -> None:
        raise Ended("this program cannot 'abort'")

    def drain(self) -> None:
        """Do nothing: a real sink computes the batch without writing it, and here there is nothing to compute."""

    def read_marker(self) -> Marker | None:
        """Return the marker that was committed last. An open transaction is not waited for."""
        consumer = self._consumer = self._consumer or Consumer(
            {
                **self._connection,
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
                last = Marker(batch, "a query", plan_up_to(end))
            elif error.code() == KafkaError._PARTITION_EOF:
                return last
            elif not error.retriable():
                raise KafkaException(error)

    look = wait_and_look = read_marker

    def _new_producer(self) -> Producer:
        settings = {
            **self._connection,
            "error_cb": lambda _: None,  # then only the call that fails raises a fatal error
            "acks": "all",
            "linger.ms": 0,
            "max.in.flight": 1,
            "enable.idempotence": self._settings["idempotent"],
            "socket.timeout.ms": 1000 * PATIENCE,
            "message.timeout.ms": 1000 * PATIENCE,
            "enable.sparse.connections": False,  # else a request for an epoch waits half a second for a connection
        }
        if self._settings["transactional"]:
            settings["transactional.id"] = self._settings["name"]
            timeout = self._settings["transaction_timeout_ms"]
            settings["transaction.timeout.ms"] = timeout
            settings["message.timeout.ms"] = min(1000 * PATIENCE, timeout)
            settings["socket.timeout.ms"] = min(1000 * PATIENCE, timeout - 200)  # the client demands that
        return Producer(settings)


def commit_in_two_phases(settings: dict[str, Any], gates: Gates) -> None:
    """Prepare each batch's transaction, decide, and finish it: a job that commits in two phases by hand.

    Takes the steps in `settings["program"]`, batch after batch. `recovers`: first carry out what was decided.
    """
    from labs.pipeline.two_phase.coordinator import DecisionLog, recover
    from labs.pipeline.two_phase.end_transaction import FinishFailed, TransactionLost, finish
    from labs.pipeline.two_phase.prepared import PreparingProducer

    checkpoint, servers = SmallCheckpoint(settings["checkpoint"]), settings["bootstrap_servers"]
    decisions = DecisionLog(checkpoint.directory / "decisions")
    if settings["recovers"]:
        recover(decisions, servers, settings["name"])
    for batch in range(settings["batch"], settings["batches"]):
        for step in settings["program"]:
            if step == "begin":
                gates.gate("fence", batch)
                producer = PreparingProducer(
                    f"{settings['name']}-{batch}",
                    bootstrap_servers=servers,
                    transaction_timeout_ms=settings["transaction_timeout_ms"],
                    client_id=settings["client_id"],
                )
                gates.answer = "ok"
            elif step == "rows":
                prepared = _prepare(producer, settings, gates, batch)
            elif step == "decide":
                gates.gate("decide", batch)
                decisions.record(batch, True, [prepared])
                checkpoint.note(batch, computed=True)  # the next job reads on behind this batch
                gates.answer = ""
            else:
                gates.gate("commit", batch)
                try:
                    finish(prepared, True, servers)
                except (TransactionLost, FinishFailed):
                    raise Ended("it was aborted") from None
                gates.answer = "ok"


def _prepare(producer: PreparingProducer, settings: dict[str, Any], gates: Gates, batch: int) -> PreparedTransaction:
    """Send the rows of a batch, and prepare its transaction."""
    rows = settings["rows"]
    headers = [
        ("batch_id", b"%d" % batch),
        ("attempt", settings["client_id"].encode()),
        ("batch_rows", b"%d" % rows),
    ]
    for record in range(batch * rows, (batch + 1) * rows):
        gates.gate("row", batch, record)
        producer.send(settings["topic"], result_value(record * WINDOW_MS, f"record {record}", 1), None, headers)
        gates.answer = "ok"
    return producer.prepare()


def consume(settings: dict[str, Any], gates: Gates) -> None:
    """Read records, write them to another topic, and commit the offset: a consumer of results.

    Takes the steps in `settings["program"]` for each record, from number `settings["record"]` on.
    """
    kafka = {"bootstrap.servers": settings["bootstrap_servers"], "client.id": settings["client_id"], "log_level": 0}
    producer = Producer({**kafka, "acks": "all", "enable.idempotence": True, "linger.ms": 0})
    consumer = Consumer({**kafka, "group.id": settings["name"], "enable.auto.commit": False})
    source, value = settings["source_topic"], b""
    consumer.assign([TopicPartition(source, 0, settings["record"])])
    for record in range(settings["record"], settings["records"]):
        for action in settings["program"]:
            gates.gate(action, row=record)
            if action == "read":
                value = _read(consumer)
            elif action == "write":
                send(producer, settings["topic"], value)
            else:
                consumer.commit(offsets=[TopicPartition(source, 0, record + 1)], asynchronous=False)
            gates.answer = ""


def _read(consumer: Consumer) -> bytes:
    message = consumer.poll(PATIENCE)
    if message is None:
        raise Ended("no record came")
    if message.error():
        raise KafkaException(message.error())
    return message.value() or b""


PROGRAMS: dict[str, Program] = {"sink": publish, "two phases": commit_in_two_phases, "consumer": consume}

if __name__ == "__main__":
    kind, ours, settings = sys.argv[1:]
    serve(PROGRAMS[kind], json.loads(settings), socket.socket(fileno=int(ours)))
