"""What a student is told about the scenarios that did not pass."""

import dataclasses
import json

from bs4 import BeautifulSoup

from labs.exercises.checker.report import Report
from labs.exercises.checker.scenario import Finding, Grade
from labs.schedules.barrier_steps import draw_barrier_job


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


def test_in_jupyter_its_verdicts_are_coloured_and_its_text_is_the_same():
    passed = Finding(scenario="no crash", action="", grade=Grade.PASSED)
    report = Report("commit_order", "<mine>.py", [passed, failed("killed", "lost", "the run failed  twice")])
    soup = BeautifulSoup(report._repr_html_(), "html.parser")
    assert [each.get_text() for each in soup.select("pre b")] == ["passed", "failed", "failed"]
    assert soup.get_text() == str(report)


def test_in_jupyter_the_picture_of_the_first_problem_is_below_its_text():
    drawn = dataclasses.replace(failed("every order", "lost", "after 4 deliveries"), picture=draw_barrier_job())
    report = Report("barrier", "mine.py", [drawn, failed("another", "lost", "as well")])
    [picture] = BeautifulSoup(report._repr_html_(), "html.parser").select("pre ~ img")
    assert picture["alt"] == draw_barrier_job().words
    assert "svg" not in json.dumps(report.as_dict())
