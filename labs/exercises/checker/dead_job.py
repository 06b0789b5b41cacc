"""What a job that was killed leaves behind: prepared transactions in a real Kafka, and a log of decisions."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from labs.equipment.eventually import eventually
from labs.equipment.topics import create_topic
from labs.evidence.auditor.audit import Result
from labs.evidence.auditor.observed import Key
from labs.evidence.readers.results import read_results
from labs.evidence.readers.transactions import read_transactions
from labs.exercises.checker.kafka_trial import results_of_a_log
from labs.exercises.checker.scenario import Lab
from labs.pipeline.records import result_value
from labs.pipeline.two_phase.decision_log import DecisionLog
from labs.pipeline.two_phase.end_transaction import finish
from labs.pipeline.two_phase.open_transactions import lingering
from labs.pipeline.two_phase.prepared import PreparedTransaction, PreparingProducer

PARTICIPANTS = 2
TIMEOUT_MS = 900_000
Rows = tuple[tuple[Key, int], ...]  # results, each with its count


@dataclass(frozen=True)
class DeadCheckpoint:
    """What the dead job had done for one checkpoint: `decided` to commit, to abort or nothing yet; `finished` so many.

    Checkpoints with the same `name` used the same transactional ids, one after the other.
    """

    name: str
    decided: bool | None
    finished: int = 0


class DeadJob:
    """A Kafka topic, transactions and a decision log, as a job that was killed leaves them."""

    def __init__(self, lab: Lab, checkpoints: tuple[DeadCheckpoint, ...]):
        self.servers, self.prefix = lab.servers, f"job-{uuid.uuid4().hex[:6]}"
        self.topic = create_topic(lab.servers, f"{self.prefix}-results", partitions=1)
        self.log = DecisionLog(lab.directory / self.prefix)
        self.expected: Mapping[Key, int] = results_of_a_log(windows=len(checkpoints), clients=4)
        rows = tuple(self.expected.items())
        windows = [rows[n : n + 4] for n in range(0, len(rows), 4)]
        self._again: list[Rows] = []
        for number, (checkpoint, rows) in enumerate(zip(checkpoints, windows, strict=True), start=1):
            self._leave(number, checkpoint, rows)

    def _leave(self, number: int, checkpoint: DeadCheckpoint, rows: Rows) -> None:
        transactions = [
            self._prepare(f"{self.prefix}-{checkpoint.name}-{participant}", rows[participant::PARTICIPANTS])
            for participant in range(PARTICIPANTS)
        ]
        if checkpoint.decided is not None:
            self.log.record(number, checkpoint.decided, transactions)
        for transaction in transactions[: checkpoint.finished]:
            finish(transaction, bool(checkpoint.decided), self.servers)
        if not checkpoint.decided:
            self._again.append(rows)

    def _prepare(self, transactional_id: str, rows: Rows) -> PreparedTransaction:
        producer = PreparingProducer(
            transactional_id, bootstrap_servers=self.servers, transaction_timeout_ms=TIMEOUT_MS
        )
        with producer:
            for key, count in rows:
                producer.send(self.topic, result_value(*key, count))
            return producer.prepare()

    def tools(self) -> dict:
        return {"servers": self.servers, "prefix": self.prefix, "decisions": str(self.log.directory)}

    def go_on(self) -> str:
        """Do what the job does next: read again what was not published. Return what is still open, in words."""
        eventually(self._settled)
        left = lingering(self.servers, self.prefix)
        for number, rows in enumerate(self._again):
            again = self._prepare(f"again-{self.prefix}-{number}", rows)
            finish(again, True, self.servers)
        eventually(lambda: self._settled("again-"))
        return ", ".join(f"{each.transactional_id} (epoch {each.epoch})" for each in left)

    def _settled(self, prefix: str = "") -> bool:
        mine = [t for t in read_transactions(self.servers) if t.transactional_id.startswith(prefix + self.prefix)]
        return not [t for t in mine if t.state.startswith("Prepare")]

    def results(self) -> list[Result]:
        return read_results(self.servers, self.topic, patience=0)  # what `go_on` has not seen ended, nobody ends

    def records_of(self, key: Key) -> list[int]:
        return []

    def clear_up(self) -> None:
        """Abort what is still open."""
        for transaction in lingering(self.servers, self.prefix):
            finish(transaction, False, self.servers)
