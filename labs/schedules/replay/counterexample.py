"""A counterexample of the model on the real Kafka: the same steps, the same answers, and the auditor's judgement.

The auditor's anomaly must be the one that the model found.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, NamedTuple

from labs.evidence.auditor.anomalies import Anomaly
from labs.evidence.auditor.audit import Audit, audit
from labs.evidence.auditor.observed import Key
from labs.evidence.readers.results import read_results
from labs.pipeline.records import WINDOW_MS
from labs.schedules.model.drivers_and_network import Stage
from labs.schedules.model.executors import ByExecutors
from labs.schedules.model.stages import DownstreamStage, TwoPhaseStage
from labs.schedules.replay.player import BasePlayer, DownstreamPlayer, Player, TwoPhasePlayer
from labs.schedules.replay.replay_bench import ReplayBench
from labs.schedules.schedule import Event, Schedule

# The model's anomaly -> the auditor's. If no driver gets further ("stuck"), the remaining records are lost, or hidden
# behind a transaction that nobody ends.
IN_THE_AUDITORS_WORDS = {
    "doubled": Anomaly.DUPLICATE,
    "lost": Anomaly.LOST,
    "torn": Anomaly.TORN_BATCH,
    "out of order": Anomaly.LOST,
    "stuck": Anomaly.LOST,
}


def judge(player: BasePlayer, *, all_of_it: bool = False) -> Audit:
    """End the replay, and audit what a reader of its topic sees.

    The audit expects the records that are noted as done, and those that are visible; with `all_of_it`, all records of
    the source.
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


class Replayed(NamedTuple):
    """The schedule that was carried out, and what `happened` on the wire and was seen, with the auditor's anomaly."""

    found: Schedule
    happened: Schedule
    audit: Audit

    @property
    def differences(self) -> list[str]:
        """Where the system did something else than the model says, a line each."""
        lines = differences(self.found, self.happened)
        if self.happened.anomaly != self.found.anomaly:
            lines.append(f"the model says {self.found.anomaly}, and the auditor {self.happened.anomaly or 'valid'}")
        return lines


PLAYERS: dict[type, Any] = {
    Stage: Player,
    TwoPhaseStage: TwoPhasePlayer,
    DownstreamStage: DownstreamPlayer,
}


def can_be_replayed(stage: Any) -> bool:
    """Tell whether there are programs that take the stage's steps. For the sink by executors there are none."""
    return not isinstance(stage, ByExecutors)


def replay_on_kafka(schedule: Schedule, stage: Any, bench: ReplayBench) -> Replayed:
    """Carry out a schedule that the model found. Raises CannotPlay."""
    expires = any(event.action == "time out" for event in schedule.events)
    player_of = next(player for kind, player in PLAYERS.items() if isinstance(stage, kind))
    with player_of(stage, bench, expires) as player:
        happened = player.play(schedule)
        audit = judge(player, all_of_it=schedule.anomaly == "stuck")
        return Replayed(schedule, happened._replace(anomaly=_shown(audit, schedule.anomaly)), audit)


def differences(model: Schedule, real: Schedule) -> list[str]:
    """Return where two schedules differ, a line each: in steps, epochs, answers, or what a reader sees."""
    pairs = itertools.zip_longest(_to_compare(model), _to_compare(real))
    return [
        f"step {n}: the model says {_in_words(said)}, and Kafka {_in_words(happened)}"
        for n, (said, happened) in enumerate(pairs, 1)
        if said != happened
    ]


def _shown(audit: Audit, expected: str | None) -> str | None:
    """Return the anomaly that the auditor finds, by the model's name if it is the expected one."""
    named = {anomaly for anomaly in audit.counts if anomaly.is_error}
    if expected == "stuck":
        named.discard(Anomaly.HANGING_TRANSACTION)
    if expected == "doubled":
        named.discard(Anomaly.NONMONOTONIC)  # a batch that comes once more comes after a later one
    if named == {IN_THE_AUDITORS_WORDS.get(expected or "")}:
        return expected
    return ", ".join(sorted(anomaly.name for anomaly in named)) or None


def _to_compare(schedule: Schedule) -> list[Event]:
    """Return the events in words that model and Kafka have in common.

    Epochs are numbered from 0 in the order in which they were granted, as in the model. Kafka leaves numbers out: if a
    transaction is open, one epoch fences its producer, and the next one is granted.
    """
    granted = sorted({epoch for event in schedule.events if (epoch := _granted(event)) is not None})
    number = {epoch: n for n, epoch in enumerate(granted)}
    return [_plain(event, number) for event in schedule.events]


def _plain(event: Event, number: dict[int, int]) -> Event:
    epoch = None if event.epoch is None or event.epoch < 0 else number.get(event.epoch, event.epoch)
    answer, granted = event.answer, _granted(event)
    if granted is not None:
        answer = f"epoch {number[granted]}"
    elif answer in ("", "known already"):
        answer = "ok"
    return event._replace(answer=answer, epoch=epoch)


def _in_words(event: Event | None) -> str:
    if event is None:
        return "nothing more"
    return f"{event}" + ("" if event.sees is None else f", and a reader sees {list(event.sees)}")


def _granted(event: Event) -> int | None:
    word, _, number = event.answer.partition(" ")
    return int(number) if word == "epoch" else None
