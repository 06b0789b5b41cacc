"""Carry out a schedule of a transaction that several tasks share: each task is a process, the driver is played here."""

from __future__ import annotations

from typing import Any

from kafka.errors import for_code
from kafka.protocol.producer.transaction import InitProducerIdRequest, InitProducerIdResponse

from labs.faults.kafka_contents import said
from labs.faults.proxy import HeldRequest, Request
from labs.pipeline.two_phase.end_transaction import finish
from labs.pipeline.two_phase.kafka_request import patiently, transaction_coordinator
from labs.pipeline.two_phase.prepared import PreparedTransaction
from labs.schedules.model.shared_transaction import SharedStage
from labs.schedules.replay.bench import PATIENCE, ReplayBench
from labs.schedules.replay.crash_player import CrashPlayer
from labs.schedules.schedule import HELD, Event


class SharedPlayer(CrashPlayer):
    """Plays one batch. A task that is run again numbers its rows as the first attempt did, or behind them."""

    program = "labs.schedules.replay.task_program"
    stage: SharedStage

    def __init__(self, stage: SharedStage, bench: ReplayBench, expires: bool = False):
        super().__init__(stage, bench, expires)
        self.partitions = stage.drivers
        self._proxy, self._held = bench.proxy, dict[tuple[str, int | None], HeldRequest]()
        self._committed = False

    def start_first(self) -> None:
        self._stack.callback(self._proxy.disarm)
        self._identity = patiently(self._new_identity, PATIENCE, "no producer id was granted")
        for task in range(self.stage.drivers):
            self._start(f"task {task + 1}")

    def due(self) -> range:
        return self.records if self._committed else range(0)

    @property
    def records(self) -> range:
        """The records of the one batch."""
        return range(self.stage.drivers * self.stage.rows)

    def place(self) -> dict[str, int]:
        return {}

    def end(self) -> None:
        super().end()
        if not self._committed:
            finish(self._identity, False, self.direct)

    def _carry_out(self, event: Event) -> str:
        if event.actor == "driver 1":
            finish(self._identity, True, self.direct)
            self._committed = True
            self._wait_until_decided()
            return "ok"
        if event.action == "run again":
            self._start(event.whose)
            return ""
        if event.actor == "network":
            answer = self._held[event.whose, event.row].deliver()
            return said(answer.error_code or 0)
        held = None
        if event.answer == HELD:
            client = self._client(event.actor)
            held = self._proxy.hold_next_request(Request.PRODUCE, cut_client=False, client_id=client)
        driver = self._drivers[event.actor]
        self._begin(driver, event)
        if not held:
            return driver.answer()
        held.wait(PATIENCE)
        self._held[event.actor, event.row] = held
        return HELD

    def more_settings(self, name: str) -> dict[str, Any]:
        task, again = int(name.split()[1]) - 1, name.endswith("again")
        return {
            "bootstrap_servers": self._proxy.bootstrap_servers,
            "producer_id": self._identity.producer_id,
            "epoch": self._identity.epoch,
            "partition": task,
            "first": task * self.stage.rows,
            "sequence": self.stage.rows if again and not self.stage.numbers_rows else 0,
        }

    def _new_identity(self) -> PreparedTransaction:
        request = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=self.timeout, producer_id=-1, producer_epoch=-1
        )
        with transaction_coordinator(self.direct, self.name) as coordinator:
            answer = coordinator.ask(request, InitProducerIdResponse, version=5)
        if answer.error_code:
            raise for_code(answer.error_code)(f"no producer id for {self.name}")
        return PreparedTransaction(self.name, answer.producer_id, answer.producer_epoch)
