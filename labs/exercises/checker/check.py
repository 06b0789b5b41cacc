"""The checker: runs a student's code under each fault of an exercise, and judges.

Guarantee: passed means that every scenario ran, that its fault hit where it should, and that the auditor calls the
outcome valid. Limitations: the code runs in a process of its own with limits of time and memory. That stops accidents,
not attacks: grade code that you do not trust in a container.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from labs.equipment.plain_text import first_line
from labs.exercises.checker.crash_points import NOT_JUDGED
from labs.exercises.checker.report import Report
from labs.exercises.checker.scenario import Exercise, Finding, Grade, Lab, Scenario
from labs.exercises.checker.student_module import read_source
from labs.exercises.checker.student_process import StudentProcess

# In the order of the lessons.
EXERCISES = (
    "commit_order",
    "idempotent_consumer",
    "one_transaction",
    "transactional_copy",
    "exactly_once_sink",
    "two_phase",
    "late_data",
    "batch_protocol",
    "sequence_numbers",
    "file_manifest",
    "barrier",
    "capstone",
)


class UnknownExercise(ValueError):
    """There is no exercise of that name."""


def find_exercise(name: str) -> Exercise:
    """Return an exercise by its name. Raises UnknownExercise."""
    if name not in EXERCISES:
        raise UnknownExercise(f"there is no exercise {name!r}; there are: {', '.join(EXERCISES)}")
    return importlib.import_module(f"labs.exercises.{name}").EXERCISE


def check(
    name: str,
    source: str | Path | Iterable[str] | None = None,
    *,
    servers: str | None = None,
    fail_fast: bool = False,
    starting: Callable[[str], object] = lambda scenario: None,
    judged: Callable[[Finding], object] = lambda finding: None,
) -> Report:
    """Judge the code for exercise `name`: a .py or .ipynb file, executed cells (`In`), or the exercise's notebook.

    A failed smoke scenario ends the check; with `fail_fast`, any failed one does. `servers` is a Kafka to use; by
    default one is started. `starting` gets the name of each scenario, `judged` its finding. A scenario that cannot be
    judged is unknown, with the reason. Raises UnknownExercise, NoSource, and what starting Kafka raises.
    """
    began, exercise = time.monotonic(), find_exercise(name)
    code = read_source(name, source)
    if code.empty:
        return Report(name, code.name, [], "there is nothing to judge: the file has no code in it")
    findings: list[Finding] = []
    with tempfile.TemporaryDirectory(prefix="labs-check-") as directory, _kafka(servers, exercise) as address:
        process = StudentProcess(code.text, code.name, exercise.entry, Path(directory), exercise.limits, exercise.warm)
        lab = Lab(address, Path(directory), process)
        ended = False
        for number, scenario in enumerate(exercise.scenarios, 1):
            if ended:
                findings.append(Finding(scenario=scenario.name, action=scenario.action, grade=Grade.NOT_RUN))
                continue
            starting(scenario.name)
            process.start_anew(number)
            finding, broken = _judge(lab, scenario)
            if finding.grade is not Grade.PASSED:
                finding = dataclasses.replace(finding, hint=exercise.hint(finding))
                ended = scenario.smoke or fail_fast or broken
            judged(finding)
            findings.append(finding)
    seconds = time.monotonic() - began
    return Report(name, code.name, findings, exercise.epilogue(findings), seconds, exercise.counted)


def _judge(lab: Lab, scenario: Scenario) -> tuple[Finding, bool]:
    """Return a scenario's finding, and whether the judge itself failed, which says nothing about the code."""
    try:
        return scenario.judge(lab, scenario), False
    except Exception as error:
        if os.environ.get("LABS_TRACEBACK"):
            raise
        detail = f"{type(error).__name__}: {first_line(str(error))}"
        unknown = Finding(
            scenario=scenario.name, action=scenario.action, grade=Grade.UNKNOWN, symptom=NOT_JUDGED, detail=detail
        )
        return unknown, True


def _kafka(servers: str | None, exercise: Exercise) -> AbstractContextManager[str]:
    if servers or exercise.own_kafka:
        return nullcontext(servers or "")
    return _OwnBroker()


class _OwnBroker:
    """A broker for one check, or the Kafka that KAFKA_BOOTSTRAP_SERVERS names."""

    def __enter__(self) -> str:
        from labs.equipment.broker import open_broker

        self._broker = open_broker()
        return self._broker.bootstrap_servers

    def __exit__(self, *_: object) -> None:
        self._broker.close()
