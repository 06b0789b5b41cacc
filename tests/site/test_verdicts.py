"""On a page an audit and a checker's report are tables, and lose nothing of what they said."""

from __future__ import annotations

from html import escape

import pytest
from bs4 import BeautifulSoup

from labs.evidence.auditor.audit import Result, audit
from labs.exercises.checker.report import Report
from labs.exercises.checker.scenario import Finding, Grade
from labs.site.render import tabulate


def shown(text: str) -> BeautifulSoup:
    soup = BeautifulSoup(f'<div class="output_area"><pre>{escape(text)}</pre></div>', "html.parser")
    tabulate(soup)
    return soup


def cells(soup: BeautifulSoup) -> list[list[str]]:
    return [[cell.get_text() for cell in row.select("th, td")] for row in soup.select("tr")]


@pytest.mark.parametrize(("copies", "verdict", "look"), [(1, "valid", "good"), (2, "invalid", "bad")])
def test_audit_is_a_row_of_numbers_below_its_verdict(copies, verdict, look):
    found = audit({(0, "<a>"): 7}, [Result(0, "<a>", 7)] * copies)
    soup = shown(f"before it\n{found}\nbehind it")
    assert cells(soup) == [
        ["expected", "delivered", "observed", "duplicated", "lost"],
        ["1", "1", str(copies), str(copies - 1), "0"],
    ]
    assert [each.get_text() for each in soup.select("caption")] == [f"audit: {verdict}"]
    assert [each.get_text() for each in soup.select(f"b.{look}")] == [verdict]
    before, behind = soup.select("pre")
    assert before.get_text() == "before it"
    assert behind.get_text() == "\n".join([*str(found).splitlines()[6:], "behind it"])


def test_report_of_the_checker_is_a_table_and_what_it_explains_stays_text():
    long = "The job is killed after its rows and before its commit, and then it is started again, twice. " * 2
    findings = [
        Finding(scenario="no crash", action="It runs.", grade=Grade.PASSED),
        Finding(scenario="killed", action=long, grade=Grade.FAILED, symptom="doubled", lost=1, doubled=12),
    ]
    soup = shown(str(Report("commit_order", "your cell", findings, seconds=3)))
    assert cells(soup) == [
        ["scenario", "verdict", "lost", "doubled", "what was done"],
        ["no crash", "passed", "0", "0", "It runs."],
        ["killed", "failed", "1", "12", long.strip()],
    ]
    assert "killed: doubled" in soup.select("pre")[-1].get_text()


def test_other_output_stays_as_it_is():
    assert (
        str(shown("audit: no table\n  of <b>this</b>").pre)
        == "<pre>audit: no table\n  of &lt;b&gt;this&lt;/b&gt;</pre>"
    )
