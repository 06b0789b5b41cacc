"""The Spark exercises' scenarios: one process, one Spark, one round after the other, and each judged by itself.

A Spark takes seconds to start, so all rounds share it. A round that ends in a SIGKILL comes last, and a second
process goes on with it from the checkpoint.
"""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from labs.equipment.topics import create_topic
from labs.evidence.audit import Result
from labs.evidence.history import Key
from labs.evidence.reader import read_results
from labs.exercises.finding import Finding, Outcome
from labs.exercises.kafka_trial import source_topic
from labs.exercises.rounds import History, conclude
from labs.exercises.scenario import Lab, Scenario
from labs.exercises.student_process import Run
from labs.exercises.timeline import timeline

Access = tuple[int, str]


@dataclass(frozen=True)
class Round:
    """One run of the query: what it reads, what ought to come out, in how large batches, and the faults.

    `also` looks at the run and returns a complaint, or nothing.
    """

    accesses: list[Access]
    expected: Mapping[Key, int]
    records_per_batch: int
    faults: tuple[tuple[str, int, str], ...] = ()
    also: Callable[[Run], str] = field(default=lambda run: "", compare=False)

    @property
    def kills(self) -> bool:
        return any(action == "kill" for _, _, action in self.faults)


class SparkTrial:
    """The topics and the checkpoint of one round."""

    def __init__(self, lab: Lab, name: str, round_: Round):
        values = [f"{time_ms},{ip}".encode() for time_ms, ip in round_.accesses]
        self.servers, self.name, self.round, self.expected = lab.servers, name, round_, round_.expected
        self.source = source_topic(lab, f"log-{abs(hash(tuple(round_.accesses))):x}", values)
        self.target = create_topic(lab.servers, f"results-{uuid.uuid4().hex[:8]}", partitions=1)
        self.checkpoint = str(lab.directory / f"checkpoint-{uuid.uuid4().hex[:8]}")

    def tools(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "source": self.source,
            "target": self.target,
            "checkpoint": self.checkpoint,
            "records_per_batch": self.round.records_per_batch,
            "expected": len(self.expected),
            "faults": self.round.faults,
        }

    def results(self) -> list[Result]:
        return read_results(self.servers, self.target)

    def records_of(self, key: Key) -> list[int]:
        return []


def spark_scenarios(function: str, rounds: list[tuple[str, str, Round]]) -> tuple[Scenario, ...]:
    """Return a scenario per (name, what is done, round). The first is the smoke test, and starts Spark for all."""

    def prepare(lab: Lab) -> None:
        trials = {name: SparkTrial(lab, name, round_) for name, _, round_ in rounds}
        tools = {"servers": lab.servers, "rounds": [trial.tools() for trial in trials.values()]}
        lab.kept["trials"] = trials
        lab.kept["began"] = time.time()
        lab.kept["run"] = lab.process.run(function, tools, lab.kept["began"])

    def judge(lab: Lab, scenario: Scenario) -> Finding:
        began = time.time()
        if "run" not in lab.kept:
            prepare(lab)
        trial, runs = lab.kept["trials"][scenario.name], [_part(lab.kept["run"], scenario.name)]
        if runs[0] is None:
            return Finding(scenario=scenario.name, done=scenario.done, outcome=Outcome.NOT_RUN)
        if trial.round.kills and runs[0].ending == "killed":
            again = {"servers": lab.servers, "rounds": [{**trial.tools(), "faults": ()}]}
            runs.append(lab.process.run(function, again, lab.kept["began"]))
        complaint = trial.round.also(runs[-1]) if runs[-1].well else ""
        needs_kill = bool(trial.round.faults)
        finding = conclude(scenario, trial, History(runs), (), began, needs_kill=needs_kill)
        if complaint and finding.outcome is Outcome.PASSED:
            lines = [*timeline(History(runs).events), ("at the end", complaint)]
            finding = dataclasses.replace(
                finding, outcome=Outcome.FAILED, symptom="remembers", detail=complaint, timeline=lines
            )
        return finding

    return tuple(Scenario(name, done, judge, smoke=n == 0) for n, (name, done, _) in enumerate(rounds))


def _part(run: Run, name: str) -> Run | None:
    """Return the part of a run that is about one round: None if the round was not begun."""
    starts = [n for n, event in enumerate(run.events) if event["kind"] == "phase" and "round" in event]
    names = [run.events[n]["round"] for n in starts]
    if name not in names:
        return run if not names and not run.well else None  # it ended before the first round
    number = names.index(name)
    if number == len(names) - 1:
        return dataclasses.replace(run, events=run.events[starts[number] :])
    return Run("returned", "returned", "", run.events[starts[number] : starts[number + 1]])
