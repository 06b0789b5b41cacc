"""What the auditor says of a replay, in the model's words: its anomaly must be the model's."""

from __future__ import annotations

from collections.abc import Iterable

from labs.evidence.auditor.anomaly import Anomaly
from labs.evidence.auditor.audit import Audit, audit
from labs.evidence.auditor.observed import Key
from labs.evidence.readers.results import read_results
from labs.pipeline.records import WINDOW_MS
from labs.schedules.replay.player import Player

# What the model calls an anomaly -> what the auditor does. Nobody ever goes on where it is stuck: the rest is lost.
IN_THE_AUDITORS_WORDS = {
    "doubled": Anomaly.DUPLICATE,
    "lost": Anomaly.LOST,
    "torn": Anomaly.TORN_BATCH,
    "out of order": Anomaly.LOST,
    "stuck": Anomaly.LOST,
}


def judge(player: Player, *, all_of_it: bool = False) -> Audit:
    """End the replay, and audit what a reader of its topic sees.

    Expected are the records whose batch the checkpoint notes as done, and those that are there already; or, if
    `all_of_it` should be there by now, all of the source's.
    """
    player.end()
    planned, noted = player.checkpoint.planned, player.checkpoint.noted
    results = read_results(player.direct, player.topic)
    source = keys(range(player.stage.batches * player.stage.rows))
    due = source if all_of_it else keys(range(planned[noted] if noted >= 0 else 0))
    expected = due | source & {(result.window_start, result.ip) for result in results}
    return audit(dict.fromkeys(expected, 1), results)


def keys(records: Iterable[int]) -> set[Key]:
    """Return records as the auditor knows them."""
    return {(record * WINDOW_MS, f"record {record}") for record in records}
