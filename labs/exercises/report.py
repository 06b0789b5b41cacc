"""The report of a check: as text for the student, as JSON for a program, as JUnit XML for a teacher's tools."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from labs.exercises.finding import Finding, Outcome

WIDTH = 118
MARKS = {Outcome.PASSED: "green", Outcome.FAILED: "red", Outcome.UNKNOWN: "yellow", Outcome.NOT_RUN: "dim"}
EXIT_CODES = {Outcome.PASSED: 0, Outcome.FAILED: 1, Outcome.UNKNOWN: 2}


@dataclass(frozen=True, repr=False)
class Report:
    """What a check found. `note` says something about the whole."""

    exercise: str
    source: str
    findings: list[Finding]
    note: str = ""
    seconds: float = 0.0

    @property
    def outcome(self) -> Outcome:
        """Failed if any scenario failed; passed if all passed; unknown otherwise, as where there was none."""
        outcomes = {finding.outcome for finding in self.findings}
        if Outcome.FAILED in outcomes:
            return Outcome.FAILED
        return Outcome.PASSED if outcomes == {Outcome.PASSED} else Outcome.UNKNOWN

    @property
    def passed(self) -> bool:
        return self.outcome is Outcome.PASSED

    @property
    def exit_code(self) -> int:
        """0 passed, 1 failed, 2 unknown."""
        return EXIT_CODES[self.outcome]

    @property
    def first_problem(self) -> Finding | None:
        return next((f for f in self.findings if f.outcome in (Outcome.FAILED, Outcome.UNKNOWN)), None)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "exercise": self.exercise,
            "source": self.source,
            "verdict": str(self.outcome),
            "note": self.note,
            "seconds": round(self.seconds, 1),
            "scenarios": [finding.as_dict() for finding in self.findings],
        }

    def as_junit(self) -> str:
        """Return JUnit XML: a test suite with one test case per scenario. What was not judged is an error."""
        by_outcome = [finding.outcome for finding in self.findings] or [Outcome.UNKNOWN]
        suite = ElementTree.Element(
            "testsuite",
            name=self.exercise,
            tests=str(len(by_outcome)),
            failures=str(by_outcome.count(Outcome.FAILED)),
            errors=str(by_outcome.count(Outcome.UNKNOWN)),
            skipped=str(by_outcome.count(Outcome.NOT_RUN)),
            time=f"{self.seconds:.1f}",
        )
        for finding in self.findings or [Finding(scenario="check", done="", outcome=Outcome.UNKNOWN, detail=self.note)]:
            case = ElementTree.SubElement(
                suite, "testcase", classname=self.exercise, name=finding.scenario, time=f"{finding.seconds:.1f}"
            )
            kinds = {Outcome.FAILED: "failure", Outcome.UNKNOWN: "error", Outcome.NOT_RUN: "skipped"}
            if kind := kinds.get(finding.outcome):
                ElementTree.SubElement(
                    case, kind, message=_printable(f"{finding.symptom}: {finding.detail}")
                ).text = _printable("\n".join([*finding.examples, *map(" ".join, finding.timeline), finding.hint]))
        ElementTree.indent(suite)
        return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)

    def show(self, console: Console) -> None:
        """Print the report: a table of all scenarios, then what is known about the first that did not pass."""
        table = Table(title=f"{self.exercise}: {self.source}", title_justify="left", box=None, padding=(0, 2, 0, 0))
        for name in ("scenario", "verdict", "lost", "doubled", "what was done"):
            table.add_column(name, justify="right" if name in ("lost", "doubled") else "left")
        for finding in self.findings:
            ran = finding.outcome is not Outcome.NOT_RUN
            numbers = [str(finding.lost), str(finding.doubled)] if ran else ["", ""]
            verdict = Text(str(finding.outcome), style=MARKS[finding.outcome])
            table.add_row(Text(finding.scenario), verdict, *numbers, Text(finding.done))
        parts: list[Any] = [table] if self.findings else []
        if problem := self.first_problem:
            parts += ["", *_explain(problem)]
        if self.note:
            parts += ["", Text(self.note)]
        verdict = Text(f"{self.outcome}", style=f"bold {MARKS[self.outcome]}")
        console.print(Group(*parts, "", Text.assemble(verdict, f" in {self.seconds:.0f} s")))

    def __str__(self) -> str:
        text = io.StringIO()
        self.show(Console(file=text, width=WIDTH, highlight=False, force_jupyter=False, color_system=None))
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    __repr__ = __str__


def _explain(finding: Finding) -> list[Any]:
    symptom = f"{finding.symptom}: " if finding.symptom else ""
    parts: list[Any] = [Text(f"{finding.scenario}: {symptom}{finding.detail}", style="bold")]
    if finding.examples:
        parts += ["for example", *(Padding(Text(example), (0, 0, 0, 2)) for example in finding.examples)]
    if finding.timeline:
        grid = Table.grid(padding=(0, 2, 0, 0))
        for when, what in finding.timeline:
            grid.add_row(Text(when, style="dim"), Text(what, style="red" if what.startswith("SIGKILL") else ""))
        parts += ["what happened", Padding(grid, (0, 0, 0, 2))]
    if finding.hint:
        parts += [Text.assemble(("hint: ", "bold"), finding.hint)]
    return parts


def _printable(text: str) -> str:
    """Drop what XML cannot contain: a student's output may hold anything."""
    return "".join(
        c for c in text if c in "\n\t" or (ord(c) >= 32 and not 0xD800 <= ord(c) < 0xE000 and ord(c) < 0xFFFE)
    )
