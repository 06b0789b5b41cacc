"""A report for the systems that teachers grade with: Gradescope's results.json, and what GitHub Actions shows.

Each scenario is worth the same, and only a passed one is worth anything: unknown is not a success.
"""

from __future__ import annotations

import json
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal

from labs.exercises.checker.finding import Finding, Grade
from labs.exercises.checker.report import Report, particulars
from labs.exercises.checker.scenario import Exercise

Visibility = Literal["visible", "hidden", "after_due_date", "after_published"]
VISIBILITIES: tuple[Visibility, ...] = ("visible", "hidden", "after_due_date", "after_published")
MARKS = {Grade.PASSED: "passed", Grade.FAILED: "**failed**", Grade.UNKNOWN: "**unknown**", Grade.NOT_RUN: "not run"}


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

    What the checker printed is for the teacher alone; `visibility` is that of the scenarios.
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

    The last has the title and the form in which GitHub Classroom read a score; whoever collects scores may do so too.
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
    """Return a text in which GitHub Actions obeys no line: a student's output could hold workflow commands."""
    token = token_hex(16)
    return f"::stop-commands::{token}\n{text}\n::{token}::"


def as_summary(report: Report, exercise: Exercise) -> str:
    """Return the report as the Markdown of a job's summary."""
    findings = judged(report, exercise)
    passed = sum(finding.grade is Grade.PASSED for finding in findings)
    rows = [f"| {_cell(each.scenario)} | {MARKS[each.grade]} | {_cell(_symptom(each))} |" for each in findings]
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
    """Return a text that stays in its cell, and is neither Markdown nor HTML."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;")
    return "".join(f"\\{c}" if c in "\\`*_[]!" else c for c in text)
