"""What the auditor says of a replay, in the model's words: its anomaly must be the model's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from labs.evidence.auditor.anomaly import Anomaly
from labs.evidence.auditor.audit import Audit, audit
from labs.evidence.auditor.observed import Key
from labs.evidence.readers.results import read_results
from labs.pipeline.records import WINDOW_MS

# What the model calls an anomaly -> what the auditor does. Nobody ever goes on where it is stuck: the rest is lost, if
# only behind a transaction that nobody ends.
IN_THE_AUDITORS_WORDS = {
    "doubled": Anomaly.DUPLICATE,
    "lost": Anomaly.LOST,
    "torn": Anomaly.TORN_BATCH,
    "out of order": Anomaly.LOST,
    "stuck": Anomaly.LOST,
}


class Played(Protocol):
    """What is judged: a topic, and what somebody has noted as done. `patience` is for what is open, in seconds."""

    topic: str
    patience: float

    @property
    def direct(self) -> str: ...

    @property
    def records(self) -> range: ...

    def due(self) -> range: ...

    def end(self) -> None: ...


def judge(player: Played, *, all_of_it: bool = False) -> Audit:
    """End the replay, and audit what a reader of its topic sees.

    Expected are the records that somebody has noted as done, and those that are there already; or, if `all_of_it`
    should be there by now, all of the source's.
    """
    player.end()
    results = read_results(player.direct, player.topic, patience=player.patience)
    source = keys(player.records)
    due = source if all_of_it else keys(player.due())
    expected = due | source & {(result.window_start, result.ip) for result in results}
    return audit(dict.fromkeys(expected, 1), results)


def keys(records: Iterable[int]) -> set[Key]:
    """Return records as the auditor knows them."""
    return {(record * WINDOW_MS, f"record {record}") for record in records}
