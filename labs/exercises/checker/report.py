"""The report of a check: text for the student, JSON for a program, and what teachers' grading systems read.

Grading systems read JUnit XML, Gradescope's results.json, or annotations of GitHub Actions. Each passed scenario is
worth the same, and all others nothing: unknown is not a success. For a failing run the report has a timeline, with only
those of the code's steps that explain the failure.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal
from xml.etree import ElementTree

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from labs.equipment.plain_text import one_line, plain
from labs.evidence.auditor.anomalies import badge
from labs.exercises.checker.scenario import Exercise, Finding, Grade

LONGEST = 24  # lines
BEFORE, AFTER = 4, 3  # lines around a kill
RESTART = ("", "— the process is started again —")
GAP = ("", "…")
KILLS = ("SIGKILL ", "crash ")  # how a journal's text about a crash by the checker begins


def timeline(
    events: Sequence[tuple[int, dict[str, Any]]], records: Sequence[int | str] = (), ends_badly: bool = False
) -> list[tuple[str, str]]:
    """Return (when, what) lines: around the events of `records`, or else around each kill, and the bad end.

    A record is given as its number, for "record 12", or as its name in the lines.
    """
    shown = [(run, e) for run, e in events if e["kind"] in ("call", "kill") or (e["kind"] == "end" and _bad(e))]
    names = [re.compile(rf"{f'record {each}' if isinstance(each, int) else re.escape(each)}\b") for each in records]
    about = [n for n, (_, e) in enumerate(shown) if any(name.search(e["what"]) for name in names)]
    kills = [n for n, (_, e) in enumerate(shown) if e["kind"] == "kill"]
    wanted: set[int] = set()
    for n in about:
        wanted.update(range(n - 1, n + 3))
    if about:  # the kill after the first time that the record was seen
        kills = [n for n in kills if n >= about[0]][:1] or kills[-1:]
    for n in kills:
        wanted.update(range(n - BEFORE, n + AFTER))
    if ends_badly:
        wanted.update(range(len(shown) - BEFORE - 1, len(shown)))
    if not wanted:  # nothing was killed: what matters is where one run ends and the next begins
        starts = [n for n in range(1, len(shown)) if shown[n][0] != shown[n - 1][0]]
        wanted.update(n for start in starts for n in range(start - AFTER, start + BEFORE))
    if not wanted:
        wanted.update(range(len(shown) - 2 * BEFORE, len(shown)))
    wanted = {n for n in wanted if 0 <= n < len(shown)}
    # A kill between two shown lines is shown too: it explains the second run.
    wanted.update(n for n, (_, e) in enumerate(shown) if e["kind"] == "kill" and min(wanted) < n < max(wanted))
    return _lines(shown, sorted(wanted))


def _lines(shown: Sequence[tuple[int, dict[str, Any]]], chosen: list[int]) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    previous = None
    for n in chosen:
        run, event = shown[n]
        if previous is not None and shown[previous][0] != run:
            lines.append(RESTART)
        if previous is not None and n != previous + 1:
            lines.append(GAP)
        lines.append((f"run {run}, {event['when']:.2f} s", event["what"].splitlines()[0] if event["what"] else ""))
        previous = n
    if len(lines) <= LONGEST:
        return lines
    kept = lines[: LONGEST - 1]
    left_out = [shown[n][1] for n in chosen if shown[n][1]["kind"] == "kill"][sum(map(_is_kill, kept)) :]
    return [*kept, ("", f"… {len(left_out)} more of these crashes, and what follows") if left_out else GAP]


def _is_kill(line: tuple[str, str]) -> bool:
    return line[1].startswith(KILLS)


def _bad(event: dict[str, Any]) -> bool:
    return event.get("ending") != "returned"


WIDTH = 118
MARKS = {Grade.PASSED: "green", Grade.FAILED: "red", Grade.UNKNOWN: "yellow", Grade.NOT_RUN: "dim"}
# In the table, and in the last line.
VERDICT = re.compile(r"(?<=  )(?:passed|failed|unknown)(?=  )|^(?:passed|failed|unknown)(?= in \d+ s$)", re.MULTILINE)
# Endings before the exercise's function was called: they concern the file, not the scenario.
NEVER_RAN = ("syntax error", "import error", "missing", "signature")
EXIT_CODES = {Grade.PASSED: 0, Grade.FAILED: 1, Grade.UNKNOWN: 2}


@dataclass(frozen=True, repr=False)
class Report:
    """What a check found. `note` says something about the whole, `counted` what is lost or doubled."""

    exercise: str
    source: str
    findings: list[Finding]
    note: str = ""
    seconds: float = 0.0
    counted: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", one_line(self.source))
        object.__setattr__(self, "note", plain(self.note))

    @property
    def grade(self) -> Grade:
        """Failed if any scenario failed; passed if all passed; unknown otherwise, also if there was none."""
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
        """The scenarios that ran and did not pass."""
        return [finding for finding in self.findings if finding.grade in (Grade.FAILED, Grade.UNKNOWN)]

    @property
    def first_problem(self) -> Finding | None:
        return next(iter(self.problems), None)

    @property
    def summary(self) -> str:
        """A line for each scenario that ran, with the reason if it did not pass.

        Without times, so that it is the same each time for the same code.
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
        """Return JUnit XML: a test suite with one test case per scenario. An unknown one is an error."""
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
        """Print the report: a table of all scenarios, then the details of each that did not pass.

        The first of these is explained in full. Each other one has one line, and its hint if that is a new one.
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
        if self.counted and any(finding.lost or finding.doubled for finding in self.findings):
            parts += ["", Text(f"lost and doubled: {self.counted}", style="dim")]
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

    def _repr_html_(self) -> str:
        """Return the text with its verdicts in colour, and the picture of the first problem if it has one."""
        text = f"<pre>{VERDICT.sub(lambda verdict: badge(verdict[0]), escape(str(self)))}</pre>"
        problem = self.first_problem
        return text + problem.picture._repr_html_() if problem and problem.picture else text


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
    """Return a line for each problem after the first, and its hint if it was not shown before."""
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
    """Return the details of a finding beside its symptom, as lines of plain text."""
    return "\n".join(filter(None, [*finding.examples, *map(" ".join, finding.timeline), finding.hint]))


Visibility = Literal["visible", "hidden", "after_due_date", "after_published"]
VISIBILITIES: tuple[Visibility, ...] = ("visible", "hidden", "after_due_date", "after_published")
IN_MARKDOWN = {
    Grade.PASSED: "passed",
    Grade.FAILED: "**failed**",
    Grade.UNKNOWN: "**unknown**",
    Grade.NOT_RUN: "not run",
}


def judged(report: Report, exercise: Exercise) -> list[Finding]:
    """Return a finding for each scenario of the exercise, so that the full score is the same for every file."""
    if report.findings:
        return report.findings
    first, *others = exercise.scenarios
    unknown = Finding(scenario=first.name, action=first.action, grade=Grade.UNKNOWN, detail=report.note)
    not_run = [Finding(scenario=each.name, action=each.action, grade=Grade.NOT_RUN) for each in others]
    return [unknown, *not_run]


def as_gradescope(
    report: Report, exercise: Exercise, points: float | None = None, visibility: Visibility = "visible"
) -> dict[str, Any]:
    """Return what Gradescope reads as results.json. `points` is the full score (default: one for each scenario).

    Only the teacher sees what the checker printed; `visibility` applies to the scenarios.
    """
    findings = judged(report, exercise)
    each = (points or len(findings)) / len(findings)
    passed = [finding.grade is Grade.PASSED for finding in findings]
    return {
        "score": round(each * sum(passed), 4),
        "execution_time": round(report.seconds, 1),
        "output": f"{report.exercise}, {report.source}: {report.grade}\n{report.note}".strip(),
        "output_format": "text",
        "test_output_format": "text",
        "test_name_format": "text",
        "stdout_visibility": "hidden",
        "tests": [
            {
                "name": finding.scenario,
                "number": str(number),
                "score": round(each, 4) if well else 0.0,
                "max_score": round(each, 4),
                "status": "passed" if well else "failed",
                "output": _told(finding),
                "visibility": visibility,
            }
            for number, (finding, well) in enumerate(zip(findings, passed, strict=True), 1)
        ],
    }


def github_lines(report: Report, exercise: Exercise) -> list[str]:
    """Return workflow commands: an annotation for each scenario that did not pass, and the points.

    The last has the title and the form in which GitHub Classroom read a score, so that others can read it, too.
    """
    findings = judged(report, exercise)
    kinds = {Grade.FAILED: "error", Grade.UNKNOWN: "warning"}
    lines = [
        _command(kinds[finding.grade], f"{report.exercise}: {finding.scenario}", _told(finding))
        for finding in findings
        if finding.grade in kinds
    ]
    passed = sum(finding.grade is Grade.PASSED for finding in findings)
    points = {"totalPoints": passed, "maxPoints": len(findings)}
    lines.append(_command("notice", "Autograding complete", f"Points {passed}/{len(findings)}"))
    lines.append(_command("notice", "Autograding report", json.dumps(points, separators=(",", ":"))))
    return lines


def without_commands(text: str) -> str:
    """Make workflow commands in a text harmless: a student's output could hold some, and GitHub Actions obeys them."""
    token = token_hex(16)
    return f"::stop-commands::{token}\n{text}\n::{token}::"


def as_summary(report: Report, exercise: Exercise) -> str:
    """Return the report as the Markdown of a job's summary."""
    findings = judged(report, exercise)
    passed = sum(finding.grade is Grade.PASSED for finding in findings)
    rows = [f"| {_cell(each.scenario)} | {IN_MARKDOWN[each.grade]} | {_cell(_symptom(each))} |" for each in findings]
    head = [f"### {report.exercise}: {passed} of {len(findings)}", "", "| scenario | verdict | |", "|---|---|---|"]
    return "\n".join([*head, *rows, ""])


def write_summary(file: Path, report: Report, exercise: Exercise) -> None:
    """Add the report to the file that GITHUB_STEP_SUMMARY names."""
    with file.open("a", encoding="utf-8") as summary:
        summary.write(as_summary(report, exercise) + "\n")


def _told(finding: Finding) -> str:
    if finding.grade is Grade.NOT_RUN:
        return "Not run: an earlier scenario did not pass."
    told = [finding.action, _symptom(finding), particulars(finding)]
    if finding.grade is Grade.UNKNOWN:
        told.insert(0, "Unknown, which is not a success:")
    return "\n".join(filter(None, told))


def _symptom(finding: Finding) -> str:
    return ": ".join(filter(None, (finding.symptom, finding.detail)))


def _command(kind: str, title: str, message: str) -> str:
    title = _escaped(title).replace(":", "%3A").replace(",", "%2C")
    return f"::{kind} title={title}::{_escaped(message)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _cell(text: str) -> str:
    """Escape a text for a cell of a Markdown table."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;")
    return "".join(f"\\{c}" if c in "\\`*_[]!" else c for c in text)
