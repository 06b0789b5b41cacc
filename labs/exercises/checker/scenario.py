"""An exercise, its scenarios (each with a name, what happens to the code, and a judge), and their findings.

A `Trial` is a fresh environment for the code: its source, its target, the expected results, and a way to read the
results. All runs of a scenario use the same trial.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from labs.equipment.plain_text import one_line, plain
from labs.evidence.auditor.audit import Result
from labs.evidence.auditor.observed import Key
from labs.exercises.checker.crash_points import NOT_JUDGED
from labs.exercises.checker.student_process import Limits, Run, StudentProcess
from labs.schedules.svg import Drawing

LOST, DOUBLED, WRONG, HIDDEN = "lost", "doubled", "wrong", "hidden"


class NoTable(ValueError):
    """A run left no valid table of what the code does."""


class Grade(StrEnum):
    """The verdict on a scenario. Unknown means that it could not be judged, which is not a success."""

    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"
    NOT_RUN = "not run"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The judgement of one scenario.

    `symptom` is "lost", "doubled", "wrong" or "hidden" for wrong results, or how the code ended ("hung",
    "crashed", "syntax error", …), "unreadable" for an answer without meaning, "changeable" for one that differs the
    next time, the model's name for an anomaly ("torn", "out of order", "stuck"), or "could not be judged"; it is empty
    if nothing is wrong.
    `timeline` has (when, what) of the runs, around what went wrong. `lost` and `doubled` are numbers of results,
    allowed or not. `cause` is the name of the exception that the code raised, or its mistake ("no marker"), if that is
    known; `restarted` tells whether the code had been started before. `picture` is what a notebook shows below the
    report, an SVG.

    Texts of the student's code are stored in printable characters, so that a finding is safe to show.
    """

    scenario: str
    action: str
    grade: Grade
    symptom: str = ""
    detail: str = ""
    lost: int = 0
    doubled: int = 0
    examples: list[str] = field(default_factory=list)
    timeline: list[tuple[str, str]] = field(default_factory=list)
    hint: str = ""
    cause: str = ""
    restarted: bool = False
    seconds: float = 0.0
    picture: Drawing | None = None

    def __post_init__(self) -> None:
        told = {
            "symptom": one_line(self.symptom),
            "cause": one_line(self.cause),
            "detail": plain(self.detail),
            "hint": plain(self.hint),
            "examples": [one_line(example) for example in self.examples],
            "timeline": [(one_line(when), one_line(what)) for when, what in self.timeline],
        }
        for name, text in told.items():
            object.__setattr__(self, name, text)

    @property
    def failed(self) -> bool:
        return self.grade is Grade.FAILED

    @property
    def reason(self) -> str:
        """Why it did not pass, in one line: the symptom with its numbers or, without numbers, with its detail."""
        numbers = f"{self.lost} lost, {self.doubled} doubled" if self.lost or self.doubled else ""
        symptom = "" if numbers and self.symptom in ("lost", "doubled") else self.symptom
        return ": ".join(filter(None, (symptom, numbers or self.detail.partition("\n")[0])))

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        plain_values = {**asdict(self), "grade": str(self.grade), "timeline": [list(line) for line in self.timeline]}
        del plain_values["picture"]  # its timeline says the same
        return plain_values


class Trial(Protocol):
    """The environment of the code in one scenario."""

    expected: Mapping[Key, int]

    def tools(self) -> dict[str, Any]:
        """Return what the entry of the exercise needs to know."""

    def results(self) -> list[Result]:
        """Read the results of the code so far."""

    def records_of(self, key: Key) -> Sequence[int | str]:
        """Return the source records of a result, as `timeline` takes them; none if they would explain nothing."""


@dataclass
class Lab:
    """What a check uses: a Kafka, the student's code, a directory, and what earlier scenarios kept."""

    servers: str
    directory: Path
    process: StudentProcess
    seed: int = 7
    quiet_runs: dict[str, Run] = field(default_factory=dict)  # function -> its run without a crash
    kept: dict[str, Any] = field(default_factory=dict)  # such as a source topic, made once


@dataclass(frozen=True)
class Scenario:
    """`judge` runs the code under the scenario's fault and returns a finding; a failed `smoke` ends the check."""

    name: str
    action: str
    judge: Callable[[Lab, Scenario], Finding]
    smoke: bool = False

    def finding(self, began: float, **told: Any) -> Finding:
        """Return a finding of a judge that began at `began` (seconds since the epoch); `told` has its other fields."""
        seconds = round(time.time() - began, 1)
        return Finding(scenario=self.name, action=self.action, seconds=seconds, **told)


@dataclass(frozen=True)
class Exercise:
    """An exercise: `entry` calls the student's code in its process, `hints` has a sentence per symptom.

    A hint for one scenario has the key "SYMPTOM/SCENARIO"; one for a cause "SYMPTOM: CAUSE", such as "crashed:
    NameError"; other exceptions have "crashed at once" and "crashed after a restart". `seconds` is how long a check of
    a right solution takes, roughly. `epilogue` returns a remark about all findings. `warm`: the process takes long to
    start, and serves several runs. `own_kafka`: its judges start the Kafka that they need. `counted` says what is lost
    or doubled.
    """

    name: str
    task: str
    entry: str
    scenarios: tuple[Scenario, ...]
    hints: Mapping[str, str]
    limits: Limits = field(default_factory=Limits)
    epilogue: Callable[[list[Finding]], str] = lambda findings: ""
    warm: bool = False
    own_kafka: bool = False
    seconds: int = 30
    counted: str = "results (one per window and IP); a result with several copies counts once"

    def hint(self, finding: Finding) -> str:
        """Return the hint that fits a finding best."""
        symptom, when = finding.symptom, "after a restart" if finding.restarted else "at once"
        for keys, several in (
            ((f"{symptom}/{finding.scenario}", f"{symptom}: {finding.cause}"), (self.hints, HINTS)),
            ((f"{symptom} {when}", symptom), (self.hints,)),
            ((f"{symptom} {when}", symptom), (HINTS,)),
        ):
            for key in keys:
                for hints in several:
                    if hint := hints.get(key):
                        return hint
        return ""


LOOP = "Each loop needs an end. If yours reads a topic: poll() returns None when the topic is read to its end."
DATABASE = (
    "The database is SQLite, by Python's sqlite3: the task names its tables and their columns. Values go in as ?, with "
    "a tuple behind the statement: execute('… WHERE ip = ?', (ip,))."
)
HINTS = {
    NOT_JUDGED: "This is neither passed nor failed. Remove the cause that is named above, and try once more.",
    "hung": LOOP,
    "crashed at once": "Nothing had crashed before: this has nothing to do with a restart. Correct the line that is "
    "named.",
    "crashed after a restart": "Run your code in your head after a restart: what does it find that the first run did "
    "not?",
    "crashed: NameError": "The checker runs this code alone, without the names, functions and imports of other cells. "
    "Define or import the name in the same cell, and check how it is spelled.",
    "crashed: UnboundLocalError": "A name that a function assigns anywhere is local to the function: give it a value "
    "before you read it.",
    "crashed: AttributeError": "The object has no such method, or it is not what you expected (poll(), for one, "
    "returns None at the end of the topic). Compare with the arguments that the task describes.",
    "crashed: EndIgnored": LOOP,
    "crashed: OperationalError": DATABASE,
    "crashed: ProgrammingError": DATABASE,
    "crashed: IntegrityError": "The database refused the statement: the row is there already. Say in the statement "
    "what to do then: INSERT OR IGNORE …, or INSERT … ON CONFLICT (…) DO UPDATE SET ….",
    "syntax error": "Python could not read the file. Correct the line that is named.",
    "import error": "Use the function's arguments and the standard library; check the name of the import.",
    "missing": "Keep the names of the functions as in the skeleton: the checker calls them by name.",
    "signature": "Keep the first line of the function as in the skeleton: the checker calls it with these arguments.",
    "exited": "Return from the function: sys.exit ends the whole process, and nobody restarts it.",
    "vanished": "Return from the function. Do not end the process, by os._exit or otherwise.",
    "out of memory": "Keep only what you need at one time: the topic may be larger than the memory.",
    "too much output": "Print less: the checker judges the results, not the output.",
    "hidden": "An open transaction hides all records behind it from read_committed readers: commit or abort each one "
    "that you begin, including the last.",
    "wrong": "The results are not what the task asks for: compare a record with the skeleton, including its types.",
    "nothing done": "Begin with the skeleton: your function should use its arguments.",
}
