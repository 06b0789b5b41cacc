"""The scenarios of the Spark exercises: each is one round of the query, in a Spark that serves the next one, too.

A Spark takes seconds to start. A round that ends in a SIGKILL also ends its Spark, and a second one continues from the
checkpoint.
"""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from labs.equipment.topics import create_topic
from labs.evidence.auditor.observed import Key, Result
from labs.exercises.checker.report import timeline
from labs.exercises.checker.rounds import History, conclude, read_published, source_topic
from labs.exercises.checker.scenario import Finding, Grade, Lab, Scenario
from labs.exercises.checker.student_process import Run
from labs.pipeline.records import source_value

Access = tuple[int, str]


@dataclass(frozen=True)
class Round:
    """One run of the query: its input, the expected results, the batch size, and the faults.

    `also` checks the run and returns a complaint, or nothing; `cause` returns the code's mistake, for a hint.
    """

    accesses: list[Access]
    expected: Mapping[Key, int]
    records_per_batch: int
    faults: tuple[tuple[str, int, str], ...] = ()
    also: Callable[[Run], str] = field(default=lambda run: "", compare=False)
    cause: Callable[[Run], str] = field(default=lambda run: "", compare=False)

    @property
    def kills(self) -> bool:
        return any(action == "kill" for _, _, action in self.faults)


class SparkTrial:
    """The topics and the checkpoint of one round."""

    def __init__(self, lab: Lab, name: str, round_: Round):
        values = [source_value(*access) for access in round_.accesses]
        self.servers, self.name, self.round, self.expected = lab.servers, name, round_, round_.expected
        self.source = source_topic(lab, f"log-{abs(hash(tuple(round_.accesses))):x}", values)
        self.target = create_topic(lab.servers, f"results-{uuid.uuid4().hex[:8]}", partitions=1)
        self.checkpoint = str(lab.directory / f"checkpoint-{uuid.uuid4().hex[:8]}")

    def tools(self) -> dict[str, Any]:
        return {
            "servers": self.servers,
            "name": self.name,
            "source": self.source,
            "target": self.target,
            "checkpoint": self.checkpoint,
            "records_per_batch": self.round.records_per_batch,
            "faults": self.round.faults,
        }

    def results(self) -> list[Result]:
        return read_published(self.servers, self.target)

    def records_of(self, key: Key) -> list[int]:
        return []


def spark_scenarios(function: str, rounds: list[tuple[str, str, Round]]) -> tuple[Scenario, ...]:
    """Return a scenario for each (name, what is done, round). The first is the smoke test."""

    def scenario(name: str, done: str, round_: Round, smoke: bool) -> Scenario:
        def judge(lab: Lab, scenario: Scenario) -> Finding:
            began, trial = time.time(), SparkTrial(lab, name, round_)
            runs = [lab.process.run(function, trial.tools(), began)]
            if round_.kills and runs[0].ending == "killed":
                runs.append(lab.process.run(function, {**trial.tools(), "faults": ()}, began))
            finding = conclude(scenario, trial, History(runs), (), began, needs_kill=bool(round_.faults))
            complaint = round_.also(runs[-1]) if runs[-1].well else ""
            if complaint and finding.grade is Grade.PASSED:
                lines = [*timeline(History(runs).events), ("at the end", complaint)]
                finding = dataclasses.replace(
                    finding, grade=Grade.FAILED, symptom="remembers", detail=complaint, timeline=lines
                )
            if finding.failed and not finding.cause:
                finding = dataclasses.replace(finding, cause=round_.cause(runs[0]))
            return finding

        return Scenario(name, done, judge, smoke)

    return tuple(scenario(name, done, round_, n == 0) for n, (name, done, round_) in enumerate(rounds))
