"""Every solution passes, and every typical wrong one fails for its stated reason."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from labs.exercises import solutions as solutions_package
from labs.exercises.catalogue import EXERCISES
from labs.exercises.checker.check import check

SOLUTIONS = Path(solutions_package.__file__).parent
WRONG = sorted((Path(__file__).parent / "wrong").glob("*.py"))
STATED = re.compile(r"Caught: (?P<symptom>.+?)\. Scenario: (?P<scenario>.+?)\.$")

pytestmark = pytest.mark.timeout(900)


def stated(file: Path) -> re.Match:
    first = ast.get_docstring(ast.parse(file.read_text())).splitlines()[0]
    found = STATED.fullmatch(first)
    assert found, f"{file.name} does not say how it is caught: {first}"
    return found


@pytest.mark.parametrize("name", EXERCISES)
def test_solution_passes_every_scenario(name, broker):
    report = check(name, SOLUTIONS / f"{name}.py", servers=broker.bootstrap_servers)
    assert report.passed, report


@pytest.mark.parametrize("file", WRONG, ids=lambda file: file.stem)
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
