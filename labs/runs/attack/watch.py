"""Every step of a run is written down, and the auditor judges whenever a reader sees something new, and at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from labs.evidence.auditor.anomaly import Anomaly
from labs.evidence.auditor.audit import Audit, audit
from labs.evidence.readers.results import read_visible
from labs.schedules.replay.judge import judge, keys
from labs.schedules.replay.player import Player
from labs.schedules.schedule import Event, Schedule


class Judged(NamedTuple):
    """What the auditor found after a step, or at the end, where `step` is None: anomaly -> how many."""

    step: int | None
    counts: dict[Anomaly, int]

    def __str__(self) -> str:
        when = "at the end" if self.step is None else f"after step {self.step}"
        return f"{when}: {', '.join(f'{times} {_name(anomaly)}' for anomaly, times in self.counts.items())}"


class AttackOutcome(NamedTuple):
    """What came of an attack. `happened` has every step with what came back, `judged` what the auditor had to say
    against it, `ended` how the last driver fared; `remarks` are on orders that could do less than they say."""

    happened: Schedule
    judged: tuple[Judged, ...]
    ended: str
    remarks: tuple[str, ...] = ()

    @property
    def broken(self) -> bool:
        return bool(self.judged)


class Watch:
    """Takes the steps of a run, through a player. `progress` is told how many have been taken."""

    def __init__(self, player: Player, progress: Callable[[int], object]):
        self.player, self.events, self.remarks = player, list[Event](), list[str]()
        self._progress, self._judged = progress, list[Judged]()

    def step(self, event: Event) -> Event:
        """Carry one step out and return it with what came of it. Raises CannotPlay."""
        event = self.player.step(event, len(self.events) + 1)
        planned, batch = self.player.checkpoint.planned, event.batch
        if event.action == "plan" and batch is not None and batch < len(planned):
            event = event._replace(row=planned[batch] - 1)
        if event.action == "restore and start":
            event = event._replace(batch=self.player.checkpoint.noted + 1)
        self.events.append(event)
        self._progress(len(self.events))
        # What is not in a transaction may be half there without harm: what else it may be, the end shows.
        if event.sees is not None and self.player.stage.transactional:
            self._note(self._audit_what_is_visible(), len(self.events))
        return event

    def outcome(self, ended: str) -> AttackOutcome:
        """End the run, in which the last driver said `ended`, and let the auditor judge all of it.

        A driver that finds a marker which does not fit refuses to go on: what it leaves out is not lost, since it says
        so. What the checkpoint notes as done has to be there all the same.
        """
        self._note(judge(self.player, all_of_it=not is_refusal(ended)), None)
        named = dict.fromkeys(_name(anomaly) for each in self._judged for anomaly in each.counts)
        schedule = Schedule(self.player.stage.name, tuple(self.events), ", ".join(named) or None)
        return AttackOutcome(schedule, tuple(self._judged), in_words(ended), tuple(self.remarks))

    def _audit_what_is_visible(self) -> Audit:
        """Expect of each batch that is to be seen the whole, and nothing twice."""
        results = read_visible(self.player.direct, self.player.topic)
        expected = {(result.window_start, result.ip) for result in results}
        begin = 0
        for end in self.player.checkpoint.planned:
            whole = keys(range(begin, end))
            expected |= whole if whole & expected else set()
            begin = end
        return audit(dict.fromkeys(expected, 1), results)

    def _note(self, judged: Audit, step: int | None) -> None:
        errors = {anomaly: times for anomaly, times in judged.counts.items() if anomaly.is_error}
        if errors and (not self._judged or self._judged[-1].counts != errors):
            self._judged.append(Judged(step, errors))


def is_refusal(ended: str) -> bool:
    """Tell whether a driver ended because of a marker that does not fit, which is what it then says."""
    return ended == "none" or ended.startswith("batch ")


def in_words(ended: str) -> str:
    """Return what the last driver said, for a reader who does not know the question."""
    return f"it refuses to go on: the marker says {ended}, which does not fit" if is_refusal(ended) else ended


def _name(anomaly: Anomaly) -> str:
    return anomaly.name.lower().replace("_", " ")
