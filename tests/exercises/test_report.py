"""What a student is told about the scenarios that did not pass."""

from labs.exercises.checker.report import Report
from labs.exercises.checker.scenario import Finding, Grade


def failed(scenario: str, symptom: str, detail: str, hint: str = "") -> Finding:
    return Finding(scenario=scenario, action="", grade=Grade.FAILED, symptom=symptom, detail=detail, hint=hint)


def test_every_scenario_that_did_not_pass_is_told_and_each_hint_once():
    findings = [
        failed("killed early", "lost", "17 of 20 results", "commit later"),
        failed("killed late", "lost", "16 of 20 results", "commit later"),
        failed("no crash", "doubled", "20 of 20 results", "commit at all"),
    ]
    text = str(Report("commit_order", "mine.py", findings))
    for line in ("killed early: lost: 17 of", "killed late: lost: 16 of", "no crash: doubled: 20 of"):
        assert line in text
    assert (text.count("hint: commit later"), text.count("hint: commit at all")) == (1, 1)
