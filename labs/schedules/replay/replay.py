"""A counterexample of the model on the real Kafka: the same steps, the same answers, and the auditor's judgement."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

from labs.evidence.auditor.anomaly import Anomaly
from labs.evidence.auditor.audit import Audit
from labs.schedules.model.by_executors import ByExecutors
from labs.schedules.model.downstream import DownstreamStage
from labs.schedules.model.kafka import Stage
from labs.schedules.model.shared_transaction import SharedStage
from labs.schedules.model.two_phase import TwoPhaseStage
from labs.schedules.replay.bench import ReplayBench
from labs.schedules.replay.downstream_player import DownstreamPlayer
from labs.schedules.replay.judge import IN_THE_AUDITORS_WORDS, judge
from labs.schedules.replay.player import Player
from labs.schedules.replay.shared_player import SharedPlayer
from labs.schedules.replay.two_phase_player import TwoPhasePlayer
from labs.schedules.schedule import Event, Schedule


class Replayed(NamedTuple):
    """What came of it.

    `happened` is what went over the wire and was seen, with the auditor's anomaly.
    """

    found: Schedule
    happened: Schedule
    audit: Audit

    @property
    def differences(self) -> list[str]:
        """Where the system did not do what the model says, a line each; none if they agree."""
        lines = differences(self.found, self.happened)
        if self.happened.anomaly != self.found.anomaly:
            lines.append(f"the model says {self.found.anomaly}, and the auditor {self.happened.anomaly or 'valid'}")
        return lines


PLAYERS: dict[type, Any] = {
    Stage: Player,
    TwoPhaseStage: TwoPhasePlayer,
    DownstreamStage: DownstreamPlayer,
    SharedStage: SharedPlayer,
}


def can_be_replayed(stage: Any) -> bool:
    """Tell whether there are programs that take a stage's steps. Of the sink by executors there are none."""
    return not isinstance(stage, ByExecutors)


def replay_on_kafka(schedule: Schedule, stage: Any, bench: ReplayBench) -> Replayed:
    """Carry out what the model found. Raises CannotPlay if that is not possible."""
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
    if named == {IN_THE_AUDITORS_WORDS.get(expected or "")}:
        return expected
    return ", ".join(sorted(anomaly.name for anomaly in named)) or None


def _to_compare(schedule: Schedule) -> list[Event]:
    """Return the events in the words that both have for them.

    Epochs are counted from 0 in the order in which they were granted, as the model does: where a transaction is open,
    Kafka takes one epoch to fence its producer and grants the next one.
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
