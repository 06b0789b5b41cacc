"""The checker tells apart the ways in which a student's code can go wrong, and never calls one of them passed."""

from __future__ import annotations

import json
import time
from xml.etree import ElementTree

import pytest

from labs.exercises.checker.check import UnknownExercise, check
from labs.exercises.checker.report import Report
from labs.exercises.checker.scenario import Finding, Grade, Lab
from labs.exercises.checker.student_module import NoSource, read_source
from labs.exercises.checker.student_process import Limits, StudentProcess
from labs.exercises.commit_order import EXERCISE
from tests.processes import runs

pytestmark = pytest.mark.timeout(120)

RIGHT = """
def lose_nothing(consumer, handle):
    while (message := consumer.poll()) is not None:
        handle(message)
        consumer.commit()
"""


@pytest.fixture
def checked(broker, tmp_path):
    """Check a text as a solution of commit_order, up to its first problem."""

    def checked(text: str) -> Report:
        file = tmp_path / "mine.py"
        file.write_text(text)
        return check("commit_order", file, servers=broker.bootstrap_servers, fail_fast=True)

    return checked


def body(*lines: str) -> str:
    return "def lose_nothing(consumer, handle):\n" + "\n".join(f"    {line}" for line in lines) + "\n"


BROKEN = {
    "syntax": ("def lose_nothing(consumer, handle)\n    pass\n", "syntax error", "line 1: expected ':'"),
    "import": ("import nowhere_to_be_found\n" + RIGHT, "import error", "nowhere_to_be_found"),
    "crash while loading": (RIGHT + "\n1 / 0\n", "crashed", "ZeroDivisionError"),
    "no function": ("def lose_nothing_at_all(consumer, handle):\n    pass\n", "missing", "lose_nothing_at_all"),
    "not a function": ("lose_nothing = 3\n", "missing", "is int"),
    "parameters": ("def lose_nothing(consumer):\n    consumer.poll()\n", "signature", "(consumer, handle)"),
    "crash": (body("handle(consumer.poll())", "raise KeyError('boom')"), "crashed", "line 3: raise KeyError('boom')"),
    "garbage to handle": (body("consumer.poll()", "handle('garbage')"), "crashed", "handle takes one record"),
    "sys.exit": (body("import sys", "consumer.poll()", "sys.exit(0)"), "exited", "sys.exit(0)"),
    "os._exit": (body("import os", "consumer.poll()", "os._exit(0)"), "vanished", "exit code 0"),
    "kills itself": (body("import os", "os.kill(os.getpid(), 9)"), "vanished", "SIGKILL"),
    "hang": (body("consumer.poll()", "while True:", "    pass"), "hung", "it was at line"),
    "hang while loading": ("while True:\n    pass\n", "hung", "it was at line"),
    "polls on": (body("while True:", "    consumer.poll()"), "crashed", "poll() has returned None 100 times"),
    "memory": (body("keep = []", "while True:", "    keep.append(bytearray(10**8))"), "out of memory", "MB"),
    "garbage": (body("while True:", "    print('garbage' * 1000)"), "too much output", "4 MB"),
}


@pytest.mark.bench
@pytest.mark.parametrize(("text", "symptom", "told"), BROKEN.values(), ids=BROKEN)
def test_code_that_does_not_run_to_its_end_fails_and_the_reason_is_named(checked, text, symptom, told):
    began = time.monotonic()
    report = checked(text)
    problem = report.first_problem
    assert (report.grade, problem.symptom) == (Grade.FAILED, symptom), report
    assert told in problem.detail, report
    assert problem.hint, report
    assert time.monotonic() - began < 30


@pytest.mark.bench
def test_last_lines_of_the_output_are_shown(checked):
    report = checked(body("consumer.poll()", "print('nearly there')", "raise RuntimeError('no')"))
    assert "nearly there" in str(report)


@pytest.mark.bench
def test_printing_a_little_garbage_changes_nothing(checked):
    noise = 'print("\\x00\\x1b[31m{\\"kind\\": \\"end\\", \\"ending\\": \\"returned\\"}")\n'
    report = checked(noise + RIGHT + "\n\ndef double_nothing(consumer, handle):\n    pass\n")
    passed = [finding.scenario for finding in report.findings if finding.grade is Grade.PASSED]
    assert len(passed) == 4, report


@pytest.mark.bench
@pytest.mark.parametrize("text", ["", "\n# nothing yet\n", '"""Only a docstring."""\n'])
def test_empty_file_is_unknown_and_not_a_success(checked, text):
    report = checked(text)
    assert (report.grade, report.exit_code) == (Grade.UNKNOWN, 2)
    assert "nothing to judge" in str(report)


@pytest.mark.bench
def test_function_that_does_nothing_is_unknown(checked):
    report = checked(body("pass"))
    assert report.grade is Grade.UNKNOWN, report
    assert report.first_problem.symptom == "nothing done"


@pytest.mark.bench
def test_code_that_passes_naively_fails_under_the_crash_with_examples_and_the_kill_in_the_timeline(checked):
    report = checked(
        body("while (message := consumer.poll()) is not None:", "    consumer.commit()", "    handle(message)")
    )
    smoke, *_ = report.findings
    problem = report.first_problem
    assert smoke.grade is Grade.PASSED, report
    assert problem.symptom == "lost"
    assert problem.lost == 3
    assert len(problem.examples) == 3
    told = [what for _, what in problem.timeline]
    kill = next(n for n, what in enumerate(told) if what.startswith("SIGKILL"))
    assert told[kill - 1].startswith("consumer.commit()")
    assert "not run" in [str(finding.grade) for finding in report.findings]


@pytest.mark.bench
def test_fault_that_finds_no_place_to_strike_is_unknown(broker, tmp_path):
    source = "def lose_nothing(consumer, handle):\n    consumer.poll()\n"
    process = StudentProcess(source, "mine.py", EXERCISE.entry, tmp_path, Limits())
    lab = Lab(broker.bootstrap_servers, tmp_path, process)
    after_handle = EXERCISE.scenarios[1]
    finding = after_handle.judge(lab, after_handle)
    assert finding.grade is not Grade.PASSED
    assert "found no place to strike" in finding.detail


@pytest.mark.bench
def test_processes_that_the_code_started_are_gone_afterwards(checked, tmp_path):
    note = tmp_path / "pid"
    lines = ["import subprocess", "child = subprocess.Popen(['sleep', '300'])"]
    checked(body(*lines, f"open({str(note)!r}, 'w').write(str(child.pid))", "raise KeyError"))
    pid = int(note.read_text())
    assert not runs(pid)


@pytest.mark.bench
def test_unknown_exercise_is_an_error():
    with pytest.raises(UnknownExercise, match="commit_order"):
        check("no_such_exercise", "mine.py")


def test_executed_cells_are_judged_by_the_last_one_that_is_marked():
    cells = ["import os", "# your solution\nx = 1", "# your solution\nx = 2", "x = 3"]
    assert read_source("commit_order", cells).text.endswith("x = 2")


def test_misspelled_function_is_judged_and_not_an_older_cell_that_spells_it_right():
    cells = [
        "# your solution\ndef on_barrier(): ...",
        "# your solution\ndef barrier(): ...",
        "# your solution\ndef copy(): ...",
    ]
    assert "def barrier" in read_source("barrier", cells).text


@pytest.mark.parametrize("cells", [[], ["x = 1"]])
def test_no_marked_cell_is_an_error_that_says_what_to_do(cells):
    with pytest.raises(NoSource, match="your solution"):
        read_source("commit_order", cells)


def test_notebook_as_a_file_is_judged_by_its_marked_cells(tmp_path):
    cells = [{"cell_type": "code", "source": ["# your solution\n", "x = 1"]}, {"cell_type": "markdown", "source": []}]
    file = tmp_path / "mine.ipynb"
    file.write_text(json.dumps({"cells": cells}))
    assert read_source("commit_order", file).text == "# your solution\nx = 1"


def test_notebook_as_a_file_is_judged_by_its_functions_even_without_the_mark(tmp_path):
    file = tmp_path / "mine.ipynb"
    sources = ["import os", "def lose_nothing(consumer, handle):\n    pass", "print(1)"]
    file.write_text(json.dumps({"cells": [{"cell_type": "code", "source": text} for text in sources]}))
    assert read_source("commit_order", file).text == sources[1]


def finding(grade: Grade, **more) -> Finding:
    return Finding(scenario=f"it {grade}", action="Something.", grade=grade, **more)


@pytest.mark.parametrize(
    ("grades", "verdict", "code"),
    [
        (["passed", "passed"], "passed", 0),
        (["passed", "failed", "unknown"], "failed", 1),
        (["passed", "unknown"], "unknown", 2),
        (["passed", "not run"], "unknown", 2),
        ([], "unknown", 2),
    ],
)
def test_report_has_passed_only_if_every_scenario_has(grades, verdict, code):
    report = Report("commit_order", "mine.py", [finding(Grade(each)) for each in grades])
    assert (str(report.grade), report.exit_code) == (verdict, code)


def test_junit_has_a_case_per_scenario_and_survives_what_xml_cannot_hold():
    failed = finding(Grade.FAILED, symptom="lost", detail="it said \x00\x1b <&>", examples=["one", "two"], hint="look")
    report = Report("commit_order", "mine.py", [finding(Grade.PASSED), failed, finding(Grade.NOT_RUN)])
    suite = ElementTree.fromstring(report.as_junit())
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["3", "1", "0", "1"]
    assert [len(case) for case in suite] == [0, 1, 1]
    assert "one" in suite.findtext(".//failure", "")


def test_junit_of_nothing_to_judge_is_an_error():
    suite = ElementTree.fromstring(Report("commit_order", "mine.py", [], "nothing to judge").as_junit())
    assert (suite.get("tests"), suite.get("errors")) == ("1", "1")


def test_json_says_what_the_text_says():
    report = Report("commit_order", "mine.py", [finding(Grade.FAILED, symptom="lost", timeline=[("run 1", "poll")])])
    told = json.loads(json.dumps(report.as_dict()))
    assert told["verdict"] == "failed"
    assert told["scenarios"][0]["timeline"] == [["run 1", "poll"]]
