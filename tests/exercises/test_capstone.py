"""The capstone judges a sink in jobs of its own; its reference solution survives what strikes there."""

from __future__ import annotations

from pathlib import Path

import pytest

from labs.exercises import capstone
from labs.exercises.checker.check import check
from labs.exercises.checker.student_module import notebook_of, publish_in, solution_of
from labs.faults.chaos_injectors import ChaosPlan
from labs.faults.job import known_sink

SKELETON = ("crashed", "no fault")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_reference_solution_survives(monkeypatch):
    monkeypatch.setattr(capstone, "MINUTES", 0.5)
    report = check("capstone", solution_of("capstone"))
    assert report.passed, report
    assert "seed" in report.findings[-1].detail


@pytest.mark.long
@pytest.mark.timeout(900)
def test_skeleton_does_not_pass():
    report = check("capstone", notebook_of("capstone"), fail_fast=True)
    assert (found := report.first_problem), report
    assert (found.symptom, found.scenario) == SKELETON, report


class Unstruck:
    """A job that comes to its end without the point at which it was to be struck."""

    paused, exit_code = False, 0

    def __init__(self, faults):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def wait(self, patience):
        pass

    def batches_done(self):
        return [0]


@pytest.mark.parametrize("strike", [capstone._woken, capstone._killed_after_commit])
def test_fault_that_found_no_place_to_strike_is_no_pass(strike):
    with pytest.raises(capstone.NotStruck, match="found no place to strike"):
        strike(lambda faults=(): Unstruck(faults), [])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def publish(rows, batch_id): ...", "publish(rows, batch_id) is called with (rows, batch_id, kafka)"),
        ("def publish(rows", "SyntaxError"),
        ("publish = 3", "publish should be a function, and is int"),
        ("def another(): ...", "there is no function publish(…); there is: another"),
        ("raise SystemExit(3)", "SystemExit"),
    ],
)
def test_file_without_a_usable_sink_is_one_clear_error(tmp_path: Path, text, said):
    file = tmp_path / "my sink é.py"
    file.write_text(text)
    with pytest.raises(ValueError, match="cannot be used as a sink") as error:
        publish_in(str(file))
    assert said in str(error.value)


def test_sink_of_a_plan_is_a_name_or_a_file(tmp_path: Path, monkeypatch):
    file = tmp_path / "my sink é.py"
    file.write_text("")
    monkeypatch.chdir(tmp_path)
    assert known_sink("by-driver") == "by-driver"
    assert ChaosPlan(sink=file.name).sink == str(file)
    assert ChaosPlan(sink=file.name).sink_name == "my sink é"
    with pytest.raises(ValueError, match="no sink is called 'kitchen'"):
        known_sink("kitchen")
    with pytest.raises(ValueError, match=r"there is no file 'another.py' with a sink"):
        known_sink("another.py")
