"""A job of a replay that commits in two phases by hand: it prepares a batch's transaction, decides, and finishes it."""

from __future__ import annotations

from typing import Any

from labs.pipeline.records import WINDOW_MS, result_value
from labs.pipeline.two_phase.coordinator import DecisionLog, recover
from labs.pipeline.two_phase.end_transaction import FinishFailed, TransactionLost, finish
from labs.pipeline.two_phase.prepared import PreparedTransaction, PreparingProducer
from labs.schedules.replay.gates import Ended, Gates, SmallCheckpoint, main


def commit_in_two_phases(settings: dict[str, Any], gates: Gates) -> None:
    """Take the steps in `settings["program"]`, batch after batch. `recovers`: first carry out what was decided."""
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


if __name__ == "__main__":
    main(commit_in_two_phases)
