"""`python -m labs check`: exit codes, JSON and JUnit."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from labs.commands.main import main
from labs.exercises import solutions
from labs.exercises.catalogue import EXERCISES
from labs.exercises.checker.report import WHAT_IS_COUNTED

SOLUTIONS = Path(solutions.__file__).parent


@pytest.fixture(autouse=True)
def use_the_tests_broker(broker, monkeypatch):
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)


@pytest.mark.long
def test_solution_that_passes_has_exit_code_0_and_one_json_object(capsys, tmp_path):
    junit = tmp_path / "report.xml"
    solution = str(SOLUTIONS / "commit_order.py")
    assert main(["check", "commit_order", solution, "--json", "--junit", str(junit)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"] == "passed"
    assert ElementTree.parse(junit).getroot().get("failures") == "0"


@pytest.mark.bench
def test_solution_that_fails_has_exit_code_1(capsys, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def lose_nothing(consumer, handle):\n    handle(consumer.poll())\n")
    assert main(["check", "commit_order", str(file)]) == 1
    shown = capsys.readouterr().out
    assert "hint:" in shown
    assert WHAT_IS_COUNTED in shown


@pytest.mark.bench
def test_syntax_error_is_about_the_file_and_not_about_a_scenario(capsys, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def lose_nothing(consumer, handle)\n")
    assert main(["check", "commit_order", str(file)]) == 1
    shown = capsys.readouterr().out
    assert "your file: syntax error: line 1: expected ':'" in shown
    assert WHAT_IS_COUNTED not in shown


@pytest.mark.bench
def test_empty_file_has_exit_code_2(capsys, tmp_path):
    file = tmp_path / "mine.py"
    file.touch()
    assert main(["check", "commit_order", str(file)]) == 2
    assert "nothing to judge" in capsys.readouterr().out


@pytest.mark.bench
def test_file_that_is_not_there_is_one_clear_line(capsys):
    assert main(["check", "commit_order", "no_such_file.py"]) == 2
    assert capsys.readouterr().err == "python -m labs check: there is no file no_such_file.py\n"


@pytest.mark.bench
def test_nothing_to_judge_is_told_to_every_grader(capsys, tmp_path, monkeypatch):
    (file := tmp_path / "mine.py").touch()
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    junit, results = tmp_path / "report.xml", tmp_path / "results.json"
    graders = ["--github", "--junit", str(junit), "--gradescope", str(results), "--points", "20"]
    assert main(["check", "commit_order", str(file), *graders]) == 2
    *_, points = capsys.readouterr().out.splitlines()
    assert points == '::notice title=Autograding report::{"totalPoints":0,"maxPoints":8}'
    assert "nothing to judge" in (tmp_path / "summary.md").read_text()
    assert ElementTree.parse(junit).getroot().get("errors") == "1"
    assert json.loads(results.read_text())["score"] == 0


@pytest.mark.long
@pytest.mark.parametrize("option", ["--junit", "--gradescope"])
def test_place_that_cannot_be_written_is_said_before_the_work(capsys, tmp_path, option):
    assert main(["check", "commit_order", "no_such_file.py", option, str(tmp_path / "nowhere" / "it")]) == 2
    assert f"there is no directory {tmp_path}/nowhere" in capsys.readouterr().err


@pytest.mark.bench
@pytest.mark.parametrize("arguments", [["no_such_exercise", "x.py"], ["commit_order", "no_such_file.py"], []])
def test_wrong_command_line_has_exit_code_2_and_says_why(capsys, arguments):
    assert main(["check", *arguments]) == 2
    assert capsys.readouterr().err.startswith("python -m labs check: ")


@pytest.mark.bench
def test_list_names_every_exercise(capsys):
    assert main(["check", "--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(EXERCISES)
