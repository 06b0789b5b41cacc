"""What an exercise is made of: scenarios, each with a name, what is done to the code, and a judge.

A `Trial` is one fresh set of what the code works with: where it reads from, where it writes to, what ought to
be there in the end, and how to read what is. The same trial is kept over all runs of a scenario.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from labs.evidence.auditor.audit import Result
from labs.evidence.auditor.observed import Key
from labs.exercises.checker.finding import Finding
from labs.exercises.checker.journal import NOT_JUDGED
from labs.exercises.checker.student_process import Limits, Run, StudentProcess


class Trial(Protocol):
    """What the code works with during one scenario."""

    expected: Mapping[Key, int]

    def tools(self) -> dict[str, Any]:
        """Return what the entry of the exercise needs to know."""

    def results(self) -> list[Result]:
        """Read what the code has brought about so far."""

    def records_of(self, key: Key) -> Sequence[int | str]:
        """Return the source records that belong to a result, as `timeline` takes them; none if that says nothing."""


@dataclass
class Lab:
    """What a check has at hand: a Kafka, the student's code, a directory, and what earlier scenarios saw."""

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
        """Return what a judge that began at `began` (seconds since the epoch) has found: `told` is a Finding's rest."""
        seconds = round(time.time() - began, 1)
        return Finding(scenario=self.name, action=self.action, seconds=seconds, **told)


@dataclass(frozen=True)
class Exercise:
    """An exercise: `entry` calls the student's code in its process, `hints` has a sentence per symptom.

    A hint for one scenario has the key "SYMPTOM/SCENARIO"; one for a cause "SYMPTOM: CAUSE", such as "crashed:
    NameError"; other exceptions have "crashed at once" and "crashed after a restart". `seconds` is how long a check of
    a right solution takes, roughly. `epilogue` may say something about all findings. `warm`: the process takes long to
    start, and serves several runs. `own_kafka`: its judges start the Kafka that they need.
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


LOOP = "Each loop needs an end: poll() returns None when the topic is read to its end."
DATABASE = (
    "The database is SQLite, by Python's sqlite3: the task names its tables and their columns. Values go in as ?, with "
    "a tuple behind the statement: execute('… WHERE ip = ?', (ip,))."
)
HINTS = {
    NOT_JUDGED: "This is neither passed nor failed. Try once more; what stands above says what is in the way.",
    "hung": LOOP,
    "crashed at once": "Nothing had crashed before: this has nothing to do with a restart. Correct the line that is "
    "named.",
    "crashed after a restart": "Run your code in your head after a restart: what does it find that the first run did "
    "not?",
    "crashed: NameError": "The checker runs this code alone: a name, a function or an import of another cell is not "
    "there. Define or import it in the same cell, and check how it is spelled.",
    "crashed: UnboundLocalError": "A name that is assigned anywhere in a function belongs to the function: give it a "
    "value before it is read.",
    "crashed: AttributeError": "What you were handed has no such method, or you did not get what you expected: poll() "
    "returns None at the end of the topic. Compare with what the task says you are handed.",
    "crashed: EndIgnored": LOOP,
    "crashed: OperationalError": DATABASE,
    "crashed: ProgrammingError": DATABASE,
    "crashed: IntegrityError": "The database refused the statement: the row is there already. Say in the statement "
    "what is to happen then: INSERT OR IGNORE …, or INSERT … ON CONFLICT (…) DO UPDATE SET ….",
    "syntax error": "Python could not read the file. Correct the line that is named.",
    "import error": "Use what the exercise hands in and the standard library; check the name of what you import.",
    "missing": "Keep the names of the functions as in the skeleton: the checker calls them by name.",
    "signature": "Keep the parameters as in the skeleton.",
    "exited": "Return from the function. sys.exit ends the whole process, and so does a consumer nobody restarts.",
    "vanished": "Return from the function. Do not end the process, by os._exit or otherwise.",
    "out of memory": "Keep no more than you need at one time: the topic may be longer than the memory is large.",
    "too much output": "Print less. What counts is what is delivered, and nobody reads the output.",
    "hidden": "A transaction that nobody ends hides all that lies behind it from read_committed readers: commit or "
    "abort each one that you begin, the last one too.",
    "wrong": "What you wrote is not what was asked for: compare a record with the skeleton, its types as well.",
    "nothing done": "Begin with the skeleton: your function should use what it is handed.",
}
