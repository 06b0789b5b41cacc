"""What graders get: Gradescope's results.json, and the annotations and summary of GitHub Actions."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from labs.commands.check import add_arguments
from labs.exercises.checker.check import EXERCISES, find_exercise
from labs.exercises.checker.report import (
    VISIBILITIES,
    Report,
    as_gradescope,
    github_lines,
    without_commands,
    write_summary,
)
from labs.exercises.checker.scenario import Finding, Grade
from labs.exercises.checker.student_module import SOLUTIONS
from labs.exercises.commit_order import EXERCISE

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads(Path(__file__).with_name("gradescope_results.schema.json").read_text())
GRADERS = ROOT / "docs" / "graders"
GRADES = [Grade.PASSED, Grade.FAILED, Grade.UNKNOWN, Grade.NOT_RUN]
NASTY = "50% <b>|\x00\x1b[31m\ud800\n::error::obey me\r\n\N{SNOWMAN}"


def report(*grades: Grade, **more) -> Report:
    findings = [
        Finding(scenario=f"scenario {n}", action="It is killed.", grade=grade, **more) for n, grade in enumerate(grades)
    ]
    return Report("commit_order", "mine.py", findings, "" if findings else "there is nothing to judge", 12.34)


def check_shape(results: object) -> None:
    """Raise ValidationError where Gradescope's documentation has it otherwise, TypeError for what is no JSON."""
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(json.loads(json.dumps(results, allow_nan=False)), SCHEMA)


@pytest.mark.parametrize("visibility", VISIBILITIES)
@pytest.mark.parametrize("points", [None, 1, 10, 0.5])
def test_gradescope_gets_a_score_for_each_scenario_and_only_for_what_passed(points, visibility):
    results = as_gradescope(report(*GRADES, symptom="lost", detail="3 of 20"), EXERCISE, points, visibility)
    check_shape(results)
    full = points or 4
    assert results["score"] == pytest.approx(full / 4)
    assert sum(test["max_score"] for test in results["tests"]) == pytest.approx(full)
    assert [test["score"] > 0 for test in results["tests"]] == [True, False, False, False]
    assert [test["status"] for test in results["tests"]] == ["passed", "failed", "failed", "failed"]
    assert {test["visibility"] for test in results["tests"]} == {visibility}
    assert (results["execution_time"], results["stdout_visibility"]) == (12.3, "hidden")
    told = [test["output"] for test in results["tests"]]
    assert "lost: 3 of 20" in told[1]
    assert told[2].startswith("Unknown, which is not a success:")
    assert told[3] == "Not run: an earlier scenario did not pass."


@pytest.mark.parametrize("grade", GRADES)
def test_whatever_the_code_printed_is_plain_text(grade):
    results = as_gradescope(report(grade, detail=NASTY, examples=[NASTY], timeline=[("1 s", NASTY)]), EXERCISE)
    check_shape(results)
    assert not re.search(r"[\x00\x1b\ud800]", results["tests"][0]["output"])
    assert results["test_output_format"] == results["output_format"] == results["test_name_format"] == "text"


@pytest.mark.parametrize("name", EXERCISES)
def test_full_score_is_the_same_where_there_was_nothing_to_judge(name):
    exercise = find_exercise(name)
    results = as_gradescope(report(), exercise)
    check_shape(results)
    assert (results["score"], len(results["tests"])) == (0, len(exercise.scenarios))
    assert "there is nothing to judge" in results["tests"][0]["output"]
    assert "there is nothing to judge" in results["output"]


def spoiled() -> dict[str, dict]:
    good = as_gradescope(report(*GRADES), EXERCISE)
    [first, *_] = good["tests"]
    return {
        "a status of ours": {**good, "tests": [{**first, "status": "unknown"}]},
        "a score in words": {**good, "score": "full"},
        "a list of lines": {**good, "tests": [{**first, "output": ["a", "b"]}]},
        "a visibility of ours": {**good, "stdout_visibility": "secret"},
        "no score anywhere": {"tests": [{"name": "x"}]},
        "a property of ours": {**good, "verdict": "passed"},
    }


@pytest.mark.parametrize("what", spoiled())
def test_schema_refuses(what):
    with pytest.raises(jsonschema.ValidationError):
        check_shape(spoiled()[what])


def test_choices_of_the_command_are_those_of_gradescope():
    add_arguments(parser := argparse.ArgumentParser())
    [action] = [each for each in parser._actions if each.dest == "visibility"]
    assert tuple(action.choices or ()) == VISIBILITIES == tuple(SCHEMA["$defs"]["visibility"]["enum"])


def test_github_gets_an_annotation_for_what_did_not_pass_and_the_points():
    lines = github_lines(report(*GRADES, symptom="lost", detail=NASTY), EXERCISE)
    assert [line.split("::")[1] for line in lines] == [
        "error title=commit_order%3A scenario 1",
        "warning title=commit_order%3A scenario 2",
        "notice title=Autograding complete",
        "notice title=Autograding report",
    ]
    assert not any("\n" in line or "\r" in line for line in lines)
    assert "50%25 <b>|\\x00\\x1b[31m\\ud800%0A::error::obey me%0A\N{SNOWMAN}" in lines[0]
    assert json.loads(lines[-1].split("::")[2]) == {"totalPoints": 1, "maxPoints": 4}


def test_what_a_student_printed_commands_nothing():
    first, *printed, last = without_commands("\n::error::obey me").splitlines()
    assert "::error::obey me" in printed
    assert first == f"::stop-commands::{last.strip(':')}"
    assert without_commands("") != without_commands("")  # a token that can be guessed is none


def test_summary_is_a_table_whatever_the_code_printed(tmp_path):
    write_summary(tmp_path / "summary", report(*GRADES, detail=NASTY), EXERCISE)
    write_summary(tmp_path / "summary", report(), EXERCISE)
    text = (tmp_path / "summary").read_text()
    assert "### commit_order: 1 of 4\n" in text
    assert f"### commit_order: 0 of {len(EXERCISE.scenarios)}\n" in text
    assert {line.count("|") for line in text.splitlines() if line.startswith("|")} == {4}
    assert "<b>" not in text


def gradescope(tmp_path: Path, handed_in: str | None, servers: str) -> dict:
    """Run the documented `run_autograder` for a submission, with a machine's /autograder at another place."""
    home = tmp_path / "autograder"
    for directory in ("source/lab", "submission", "results"):
        (home / directory).mkdir(parents=True)
    if handed_in is not None:
        (home / "submission" / "commit_order.py").write_text(handed_in)
    script = (GRADERS / "run_autograder").read_text().replace("/autograder/", f"{home}/")
    (home / "run_autograder").write_text(script.replace(".venv/bin/python", shlex.quote(sys.executable)))
    environment = {**os.environ, "KAFKA_BOOTSTRAP_SERVERS": servers, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(["bash", home / "run_autograder"], env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert (home / "results/results.json").exists(), ran.stdout + ran.stderr
    return json.loads((home / "results" / "results.json").read_text())


@pytest.mark.long
def test_documented_autograder_of_gradescope_passes_the_solution(tmp_path, broker):
    solution = (SOLUTIONS / "commit_order.py").read_text()
    results = gradescope(tmp_path, solution, broker.bootstrap_servers)
    check_shape(results)
    assert results["score"] == 10, results
    assert {test["status"] for test in results["tests"]} == {"passed"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("handed_in", "told"),
    [(None, "there is no file"), ("", "nothing to judge"), ("def lose_nothing(\n", "syntax error")],
)
def test_documented_autograder_of_gradescope_grades_whatever_is_handed_in(tmp_path, broker, handed_in, told):
    results = gradescope(tmp_path, handed_in, broker.bootstrap_servers)
    check_shape(results)
    assert results["score"] == 0
    assert sum(test["max_score"] for test in results["tests"]) == pytest.approx(10)
    assert told in results["tests"][0]["output"]


@pytest.mark.long
@pytest.mark.parametrize("script", ["run_autograder", "setup.sh"])
def test_scripts_for_graders_are_bash_and_may_be_run(script):
    assert subprocess.run([shutil.which("bash") or "bash", "-n", GRADERS / script]).returncode == 0
    assert (GRADERS / script).stat().st_mode & 0o111


def test_guide_shows_the_script_as_it_is():
    lines = [line for line in (GRADERS / "run_autograder").read_text().splitlines() if not line.startswith("#")]
    guide = (ROOT / "docs" / "teachers-guide.md").read_text()
    assert "\n".join(f"    {line}".rstrip() for line in lines).removesuffix("    exit 0") in guide
