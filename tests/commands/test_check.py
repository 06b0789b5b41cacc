"""`python -m labs check`: exit codes, JSON and JUnit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from labs.commands.main import main
from labs.equipment.waiting import eventually
from labs.exercises.checker.check import EXERCISES
from labs.exercises.checker.student_module import SOLUTIONS


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
    assert "lost and doubled: results (one per window and IP)" in shown


@pytest.mark.bench
def test_syntax_error_is_about_the_file_and_not_about_a_scenario(capsys, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def lose_nothing(consumer, handle)\n")
    assert main(["check", "commit_order", str(file)]) == 1
    shown = capsys.readouterr().out
    assert "your file: syntax error: line 1: expected ':'" in shown
    assert "lost and doubled:" not in shown


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


@pytest.fixture
def reports(tmp_path):
    """The options by which graders are told, and where."""
    junit, results = tmp_path / "report.xml", tmp_path / "results.json"
    return junit, results, ["--junit", str(junit), "--gradescope", str(results)]


def told(junit: Path, results: Path) -> str:
    """Return what graders are told of a check without a verdict."""
    suite = ElementTree.parse(junit).getroot()
    assert (suite.get("errors"), suite.get("failures")) == ("1", "0")
    graded = json.loads(results.read_text())
    assert (graded["score"], graded["tests"][0]["status"]) == (0, "failed")
    error = suite.find(".//error")
    assert error is not None
    message = (error.get("message") or "").removeprefix(": ")
    assert message in graded["tests"][0]["output"]
    return message


@pytest.mark.long
def test_kafka_that_is_not_there_is_told_to_every_grader_and_is_no_verdict(capsys, monkeypatch, reports):
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    junit, results, options = reports
    results.write_text('{"score": 10, "output": "of yesterday"}')
    assert main(["check", "commit_order", str(SOLUTIONS / "commit_order.py"), *options]) == 2
    assert "could not be judged: KafkaUnreachable: no Kafka answers at 127.0.0.1:1" in capsys.readouterr().out
    assert "could not be judged: KafkaUnreachable: no Kafka answers at 127.0.0.1:1" in told(junit, results)


@pytest.mark.long
def test_check_that_was_stopped_leaves_no_report_of_yesterday(tmp_path, reports):
    (file := tmp_path / "mine.py").write_text("while True:\n    pass\n")
    junit, results, options = reports
    results.write_text('{"score": 10, "output": "of yesterday"}')
    command = [sys.executable, "-m", "labs", "check", "sequence_numbers", str(file), *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    eventually(lambda: junit.exists() and results.read_text().count("did not finish"), timeout=60)
    process.kill()
    process.wait()
    assert "did not finish" in told(junit, results)


@pytest.mark.bench
def test_report_is_not_written_over_what_is_to_be_judged(capsys, tmp_path):
    (file := tmp_path / "mine.py").write_text("x = 1\n")
    assert main(["check", "sequence_numbers", str(file), "--junit", f"{tmp_path}/../{tmp_path.name}/mine.py"]) == 2
    assert "is the file to judge" in capsys.readouterr().err
    assert file.read_text() == "x = 1\n"


@pytest.mark.long
def test_reports_are_written_where_nobody_reads_the_output(tmp_path, reports):
    (file := tmp_path / "mine.py").write_text("def append(log, record):\n    return log.write(record)\n")
    junit, results, options = reports
    command = [sys.executable, "-m", "labs", "check", "sequence_numbers", str(file), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    process.stdout.close()
    process.wait()
    assert ElementTree.parse(junit).getroot().get("failures") == "4"
    assert "failed" in json.loads(results.read_text())["output"]
