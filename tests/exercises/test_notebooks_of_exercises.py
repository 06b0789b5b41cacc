"""The notebooks of the exercises: each has a task, a skeleton that fails in an instructive way, hints and a check."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from labs.exercises.checker.check import EXERCISES, check
from labs.exercises.checker.student_module import MARK, notebook_of
from tests.lessons import cells, lessons

# What the skeleton, unchanged, is told.
SKELETONS = {
    "commit_order": ("doubled", "lose_nothing: no crash"),
    "idempotent_consumer": ("doubled", "no crash"),
    "one_transaction": ("doubled", "no crash"),
    "transactional_copy": ("doubled", "killed after commit"),
    "exactly_once_sink": ("doubled", "crash after commit"),
    "two_phase": ("doubled", "decided or not"),
    "late_data": ("lost", "20 seconds late"),
    "batch_protocol": ("doubled", "every interleaving"),
    "file_manifest": ("torn", "killed in the middle of a file"),
    "sequence_numbers": ("doubled", "an answer is lost"),
    "barrier": ("lost", "every order"),
    "capstone": ("crashed", "no fault"),
}
each_exercise = pytest.mark.parametrize("name", EXERCISES)


def cells_of(name: str, kind: str) -> list[str]:
    return cells(notebook_of(name), kind)


@each_exercise
def test_notebook_has_one_skeleton_unfolding_hints_and_ends_in_the_check(name):
    code, prose = cells_of(name, "code"), "\n".join(cells_of(name, "markdown"))
    assert [cell.startswith(MARK) for cell in code].count(True) == 1
    assert code[-1].endswith(f'check("{name}", In)')
    assert prose.count("<details><summary>") >= 3


def judged_in_a_lesson(name: str) -> bool:
    """Tell whether a lesson has the same skeleton and its failure's summary is compared when the lesson is run."""
    [skeleton] = [cell.strip() for cell in cells_of(name, "code") if cell.startswith(MARK)]
    return any(skeleton in code and f'check("{name}", In' in "\n".join(code) for code in lessons())


def test_most_skeletons_are_judged_in_a_lesson():
    assert sum(map(judged_in_a_lesson, EXERCISES)) >= 8


@pytest.mark.bench
@pytest.mark.parametrize("name", [name for name in EXERCISES if not judged_in_a_lesson(name) and name != "capstone"])
@pytest.mark.timeout(900)
def test_skeleton_unchanged_fails_with_its_lesson(name, broker):
    report = check(name, servers=broker.bootstrap_servers, fail_fast=True)
    problem = report.first_problem
    assert problem, report
    assert (problem.symptom, problem.scenario) == SKELETONS[name], report
    assert problem.hint, report


@each_exercise
def test_notebook_was_committed_with_the_report_of_the_skeleton(name):
    cells = json.loads(notebook_of(name).read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    shown = json.dumps(code[-1]["outputs"])
    symptom, scenario = SKELETONS[name]
    assert f"{scenario}: {symptom}" in shown
    assert "hint:" in shown
    assert not [output for output in code[-1]["outputs"] if output.get("name") == "stderr"]


@pytest.mark.long
def test_notebook_runs_where_none_keeps_a_history():
    notebook = notebook_of("sequence_numbers")  # which needs no Kafka
    nbval = [sys.executable, "-m", "pytest", "--nbval-lax", "-q", notebook.name]
    run = subprocess.run(nbval, cwd=notebook.parent, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-3000:]
