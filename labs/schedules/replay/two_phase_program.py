"""A job of a replay that commits in two phases by hand: it prepares a batch's transaction, decides, and finishes it."""

from __future__ import annotations

from typing import Any

from labs.pipeline.records import WINDOW_MS, result_value
from labs.pipeline.two_phase.coordinator import recover
from labs.pipeline.two_phase.decision_log import DecisionLog
from labs.pipeline.two_phase.end_transaction import FinishFailed, TransactionLost, finish
from labs.pipeline.two_phase.prepared import PreparedTransaction, PreparingProducer
from labs.schedules.replay.checkpoint import SmallCheckpoint
from labs.schedules.replay.stepwise import Ended, serve


class TwoPhaseProgram:
    """Runs `settings["program"]`, batch after batch, from `batch` on. `recovers`: it first does what was decided."""

    def __init__(self, settings: dict[str, Any]):
        self._settings, self._batch, self._step, self._row = settings, settings["batch"], 0, 0
        self._servers = settings["bootstrap_servers"]
        self._checkpoint = SmallCheckpoint(settings["checkpoint"])
        self._decisions = DecisionLog(self._checkpoint.directory / "decisions")
        self._producer: PreparingProducer | None = None
        self._prepared: PreparedTransaction | None = None
        if settings["recovers"]:
            recover(self._decisions, self._servers, settings["name"])

    @property
    def finished(self) -> bool:
        return self._batch == self._settings["batches"]

    def upcoming(self) -> dict[str, Any]:
        step = self._settings["program"][self._step]
        if step == "rows":
            return {"action": "row", "batch": self._batch, "row": self._batch * self._settings["rows"] + self._row}
        return {"action": {"begin": "fence", "finish": "commit"}.get(step, step), "batch": self._batch}

    def take(self, step: dict[str, Any]) -> str:
        action = step["action"]
        if action == "row":
            self._send(step["row"])
            if self._row < self._settings["rows"]:
                return "ok"
            self._row = 0
        elif action == "fence":
            self._producer = PreparingProducer(
                f"{self._settings['name']}-{self._batch}",
                bootstrap_servers=self._servers,
                transaction_timeout_ms=self._settings["transaction_timeout_ms"],
                client_id=self._settings["client_id"],
            )
        elif action == "decide":
            self._decisions.record(self._batch, True, [self._whole()])
            self._checkpoint.note(self._batch, computed=True)  # behind it the source is read on
        else:
            self._finish()
        self._step += 1
        if self._step == len(self._settings["program"]):
            self._batch, self._step = self._batch + 1, 0
        return "" if action == "decide" else "ok"

    def _send(self, record: int) -> None:
        assert self._producer
        rows = self._settings["rows"]
        self._row += 1
        headers = [("batch_id", b"%d" % self._batch), ("attempt", self._settings["client_id"].encode())]
        headers.append(("batch_rows", b"%d" % rows))
        self._producer.send(
            self._settings["topic"], result_value(record * WINDOW_MS, f"record {record}", 1), None, headers
        )
        if self._row == rows:
            self._prepared = self._producer.prepare()

    def _whole(self) -> PreparedTransaction:
        assert self._prepared, "the program prepares a batch before it decides"
        return self._prepared

    def _finish(self) -> None:
        try:
            finish(self._whole(), True, self._servers)
        except (TransactionLost, FinishFailed):
            raise Ended("it was aborted") from None


if __name__ == "__main__":
    serve(TwoPhaseProgram)
