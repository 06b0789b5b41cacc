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

from labs.equipment.plain_text import one_line, plain
from labs.exercises.checker.finding import Finding, Grade

WIDTH = 118
WHAT_IS_COUNTED = "lost and doubled: results, one per window and IP, however many records repeat one"
MARKS = {Grade.PASSED: "green", Grade.FAILED: "red", Grade.UNKNOWN: "yellow", Grade.NOT_RUN: "dim"}
# Endings before the exercise's function was called: they are about the file, whatever the scenario.
NEVER_RAN = ("syntax error", "import error", "missing", "signature")
EXIT_CODES = {Grade.PASSED: 0, Grade.FAILED: 1, Grade.UNKNOWN: 2}


@dataclass(frozen=True, repr=False)
class Report:
    """What a check found. `note` says something about the whole."""

    exercise: str
    source: str
    findings: list[Finding]
    note: str = ""
    seconds: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", one_line(self.source))
        object.__setattr__(self, "note", plain(self.note))

    @property
    def grade(self) -> Grade:
        """Failed if any scenario failed; passed if all passed; unknown otherwise, as where there was none."""
        grades = {finding.grade for finding in self.findings}
        if Grade.FAILED in grades:
            return Grade.FAILED
        return Grade.PASSED if grades == {Grade.PASSED} else Grade.UNKNOWN

    @property
    def passed(self) -> bool:
        return self.grade is Grade.PASSED

    @property
    def exit_code(self) -> int:
        """0 passed, 1 failed, 2 unknown."""
        return EXIT_CODES[self.grade]

    @property
    def problems(self) -> list[Finding]:
        """The scenarios that did not pass."""
        return [finding for finding in self.findings if finding.grade in (Grade.FAILED, Grade.UNKNOWN)]

    @property
    def first_problem(self) -> Finding | None:
        return next(iter(self.problems), None)

    @property
    def summary(self) -> str:
        """A line for each scenario that was run, with its reason if it did not pass, and without times.

        It is the same each time for the same code.
        """
        lines = []
        for finding in self.findings:
            if finding.grade is Grade.NOT_RUN:
                continue
            why = f" ({finding.reason})" if finding in self.problems and finding.reason else ""
            lines.append(f"{finding.scenario}: {finding.grade}{why}")
        return "\n".join([*lines, self.note] if self.note and not lines else lines)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "exercise": self.exercise,
            "source": self.source,
            "verdict": str(self.grade),
            "note": self.note,
            "seconds": round(self.seconds, 1),
            "scenarios": [finding.as_dict() for finding in self.findings],
        }

    def as_junit(self) -> str:
        """Return JUnit XML: a test suite with one test case per scenario. What was not judged is an error."""
        by_grade = [finding.grade for finding in self.findings] or [Grade.UNKNOWN]
        suite = ElementTree.Element(
            "testsuite",
            name=self.exercise,
            tests=str(len(by_grade)),
            failures=str(by_grade.count(Grade.FAILED)),
            errors=str(by_grade.count(Grade.UNKNOWN)),
            skipped=str(by_grade.count(Grade.NOT_RUN)),
            time=f"{self.seconds:.1f}",
        )
        for finding in self.findings or [Finding(scenario="check", action="", grade=Grade.UNKNOWN, detail=self.note)]:
            case = ElementTree.SubElement(
                suite, "testcase", classname=self.exercise, name=finding.scenario, time=f"{finding.seconds:.1f}"
            )
            kinds = {Grade.FAILED: "failure", Grade.UNKNOWN: "error", Grade.NOT_RUN: "skipped"}
            if kind := kinds.get(finding.grade):
                told = ElementTree.SubElement(case, kind, message=f"{finding.symptom}: {finding.detail}")
                told.text = particulars(finding)
        ElementTree.indent(suite)
        return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)

    def show(self, console: Console) -> None:
        """Print the report: a table of all scenarios, then what is known about each that did not pass.

        The first is explained in full, the others as far as they say something else.
        """
        table = Table(
            title=Text(f"{self.exercise}: {self.source}"), title_justify="left", box=None, padding=(0, 2, 0, 0)
        )
        for name in ("scenario", "verdict", "lost", "doubled", "what was done"):
            table.add_column(name, justify="right" if name in ("lost", "doubled") else "left")
        for finding in self.findings:
            ran = finding.grade is not Grade.NOT_RUN and finding.symptom not in NEVER_RAN
            numbers = [str(finding.lost), str(finding.doubled)] if ran else ["", ""]
            verdict = Text(str(finding.grade), style=MARKS[finding.grade])
            table.add_row(Text(finding.scenario), verdict, *numbers, Text(finding.action))
        parts: list[Any] = [table] if self.findings else []
        if any(finding.lost or finding.doubled for finding in self.findings):
            parts += ["", Text(WHAT_IS_COUNTED, style="dim")]
        if problem := self.first_problem:
            parts += ["", *_explain(problem)]
            parts += _explain_others(self.problems)
        if self.note:
            parts += ["", Text(self.note)]
        verdict = Text(f"{self.grade}", style=f"bold {MARKS[self.grade]}")
        console.print(Group(*parts, "", Text.assemble(verdict, f" in {self.seconds:.0f} s")))

    def __str__(self) -> str:
        text = io.StringIO()
        self.show(Console(file=text, width=WIDTH, highlight=False, force_jupyter=False, color_system=None))
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    __repr__ = __str__


def _explain(finding: Finding) -> list[Any]:
    parts: list[Any] = [Text(_heading(finding), style="bold")]
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


def _explain_others(problems: list[Finding]) -> list[Any]:
    """Return a line for each problem after the first, and its hint where that was not given yet."""
    parts: list[Any] = []
    given = {problem.hint for problem in problems[:1]}
    for problem in problems[1:]:
        parts += ["", Text(_heading(problem), style="bold")]
        if problem.hint not in {"", *given}:
            parts += [Text.assemble(("hint: ", "bold"), problem.hint)]
            given.add(problem.hint)
    return parts


def _heading(finding: Finding) -> str:
    where = "your file" if finding.symptom in NEVER_RAN else finding.scenario
    symptom = f"{finding.symptom}: " if finding.symptom else ""
    return f"{where}: {symptom}{finding.detail}"


def particulars(finding: Finding) -> str:
    """Return what is known of a scenario beside its symptom, as lines of plain text."""
    return "\n".join(filter(None, [*finding.examples, *map(" ".join, finding.timeline), finding.hint]))
