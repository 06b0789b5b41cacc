"""Every solution is judged, most of them in a lesson, and every typical wrong one fails for its stated reason."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from labs.exercises.checker.check import EXERCISES, check
from labs.exercises.checker.student_module import solution_of
from tests.lessons import lessons
from tests.tiers import in_tiers

WRONG = sorted((Path(__file__).parent / "wrong").glob("*.py"))
RIGHT = sorted((Path(__file__).parent / "right").glob("*.py"))  # other designs than the reference solution's
# One for each exercise, and each way to go wrong: what is quick to find. None of the capstone is.
SHORT = (
    "barrier__counts_on_until_the_last",
    "batch_protocol__fences_once",
    "commit_order__commits_first",
    "exactly_once_sink__has_no_marker",
    "file_manifest__replaces_what_was_read",
    "idempotent_consumer__takes_the_ip_for_the_name",
    "late_data__deduplicates_for_ever",
    "one_transaction__saves_the_last_offset",
    "sequence_numbers__takes_what_is_newer",
    "transactional_copy__never_ends_its_last_transaction",
    "two_phase__aborts_everything",
)
IN_NO_LESSON = ("one_transaction", "capstone")
STATED = re.compile(r"Caught: (?P<symptom>.+?)\. Scenario: (?P<scenario>.+?)\.$")

pytestmark = pytest.mark.timeout(900)


def stated(file: Path) -> re.Match:
    first = (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n")[0]
    found = STATED.fullmatch(first)
    assert found, f"{file.name} does not say how it is caught: {first}"
    return found


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in IN_NO_LESSON if name != "capstone"])  # it has a test of its own
def test_solution_passes(name, broker):
    report = check(name, solution_of(name), servers=broker.bootstrap_servers)
    assert report.passed, report


@pytest.mark.long
@pytest.mark.parametrize("file", RIGHT, ids=lambda file: file.stem)
def test_another_right_solution_passes(file, broker):
    report = check(file.stem.partition("__")[0], file, servers=broker.bootstrap_servers)
    assert report.passed, report


@pytest.mark.parametrize("name", [name for name in EXERCISES if name not in IN_NO_LESSON])
def test_solution_is_judged_and_asserted_in_a_lesson(name):
    """tests/test_notebooks.py runs the lesson; to judge the same again here would take minutes and find nothing."""
    judged = re.compile(rf'check\("{name}", In.*?(\w+) = own_or_reference\(.*?assert[^#]*\b\1\.passed', re.DOTALL)
    assert [lesson for lesson in lessons() if judged.search("\n".join(lesson))]


@pytest.mark.parametrize("file", in_tiers(WRONG, SHORT, lambda file: file.stem))
def test_wrong_solution_is_caught_for_its_stated_reason(file, broker):
    report = check(file.stem.partition("__")[0], file, servers=broker.bootstrap_servers, fail_fast=True)
    problem = report.first_problem
    assert problem, f"nothing was found wrong\n{report}"
    assert problem.failed, report
    assert (problem.symptom, problem.scenario) == stated(file).group("symptom", "scenario"), report
    assert problem.hint, report
    assert problem.timeline, report
    if problem.symptom in ("lost", "doubled"):
        assert problem.examples, report


@pytest.mark.parametrize("name", EXERCISES)
def test_exercise_has_at_least_three_wrong_solutions(name):
    assert len([file for file in WRONG if file.stem.startswith(f"{name}__")]) >= 3
