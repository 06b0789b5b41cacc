"""A counterexample of the model on the real Kafka: the same steps, the same answers, and the auditor's judgement."""

from __future__ import annotations

from typing import NamedTuple

from labs.evidence.auditor.audit import Audit
from labs.schedules.model.kafka import Stage
from labs.schedules.replay.judge import IN_THE_AUDITORS_WORDS, judge
from labs.schedules.replay.player import Bench, Player
from labs.schedules.schedule import Event, Schedule


class Replayed(NamedTuple):
    """What came of it. `happened` has what really came back and was seen."""

    found: Schedule
    happened: Schedule
    audit: Audit

    @property
    def differences(self) -> list[str]:
        """Where the system did not do what the model says, a line each; none if they agree."""
        pairs = zip(self.found.events, self.happened.events, strict=True)
        lines = [
            f"step {n}, {model._replace(answer='')}: the model says {came_of(model)}, and Kafka {came_of(real)}"
            for n, (model, real) in enumerate(pairs, 1)
            if came_of(model) != came_of(real)
        ]
        named = {anomaly.name for anomaly in self.audit.counts if anomaly.is_error}
        expected = {IN_THE_AUDITORS_WORDS[self.found.anomaly].name} if self.found.anomaly else set()
        if named != expected:
            lines.append(f"the model says {self.found.anomaly}, and the auditor {', '.join(named) or 'valid'}")
        return lines


def replay(schedule: Schedule, stage: Stage, bench: Bench) -> Replayed:
    """Carry out what the model found. Raises CannotPlay if that is not possible."""
    expires = any(event.action == "time out" for event in schedule.events)
    with Player(stage, bench, expires) as player:
        happened = player.play(schedule)
        return Replayed(schedule, happened, judge(player, all_of_it=schedule.anomaly == "stuck"))


def came_of(event: Event) -> tuple[str, tuple[int, ...] | None]:
    """Return the answer in the words that both have for it, and what a reader sees where that has changed."""
    if event.answer.startswith("epoch ") or event.answer in ("", "known already"):
        return "ok", event.sees
    return event.answer, event.sees
