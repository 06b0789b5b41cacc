"""The forge's workflow has the shape that the forge knows, and its shards hold every test exactly once."""

from __future__ import annotations

import argparse
import copy
import glob
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from labs.commands.check import add_arguments
from labs.exercises.checker.check import EXERCISES

ROOT = Path(__file__).parents[1]
FILE = ROOT / ".github" / "workflows" / "test.yml"
FOR_CLASSES = ROOT / "docs" / "graders" / "autograding.yml"
WORKFLOW = yaml.safe_load(FILE.read_text())
TEST_FILES = {str(path.relative_to(ROOT)) for path in ROOT.glob("tests/**/test_*.py")}
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]  # those for which every wheel exists; tests/test_lock.py


def expanded(paths: str) -> list[str]:
    """Return the test files that pytest finds for a shard's paths, as often as it would run them."""
    found = [path for pattern in paths.split() for path in glob.glob(pattern, root_dir=ROOT)]
    return [file for path in found for file in TEST_FILES if file == path or file.startswith(f"{path}/")]


def findings(workflow: dict) -> Iterator[str]:
    """Yield what is wrong with the workflow, one line each."""
    job = workflow["jobs"]["test"]
    matrix = job["strategy"]["matrix"]
    times = Counter(file for shard in matrix["shard"] for file in expanded(shard["paths"]))
    for shard in matrix["shard"]:
        if not expanded(shard["paths"]):
            yield f"the shard {shard['name']} has no tests"
    yield from (f"{file} is in {times[file]} shards" for file in sorted(TEST_FILES) if times[file] != 1)
    if matrix["python"] != PYTHONS:
        yield f"Python {matrix['python']}, expected {PYTHONS}"
    if {system.partition("-")[0] for system in matrix["system"]} != {"ubuntu", "macos"}:
        yield "Linux and macOS are promised"
    caches = [step["with"] for step in job["steps"] if step.get("uses", "").startswith("actions/cache@")]
    keys = {name: next((each["key"] for each in caches if name in each["path"]), "") for name in ("jgo", "uv")}
    if "hashFiles('labs/equipment/jars.sha256')" not in keys["jgo"]:
        yield "the jars are cached under another key than their sums"
    if "hashFiles('requirements.lock')" not in keys["uv"]:
        yield "the wheels are cached under another key than their sums"
    if not any('make tests TESTS="${{ matrix.shard.paths }} ' in step.get("run", "") for step in job["steps"]):
        yield "the shards are not what is run"
    if set(workflow["jobs"]["all"]["needs"]) != workflow["jobs"].keys() - {"all"}:
        yield "not every job counts"
    for name, each in workflow["jobs"].items():
        if "timeout-minutes" not in each:
            yield f"{name} may hang"
    if workflow["permissions"] != {"contents": "read"}:
        yield "it may do more than read"


def test_workflow_is_whole():
    assert list(findings(WORKFLOW)) == []


SPOILED: dict[str, Callable[[dict], object]] = {
    "tests/sink/": lambda jobs: jobs["test"]["strategy"]["matrix"]["shard"].pop(0),
    "tests/test_notebooks.py is in 2": lambda jobs: jobs["test"]["strategy"]["matrix"]["shard"][-1].update(
        paths="tests/test_*.py"
    ),
    "the shard sink has no tests": lambda jobs: jobs["test"]["strategy"]["matrix"]["shard"][0].update(
        paths="tests/sunk"
    ),
    "Python ['3.11', '3.12', '3.13']": lambda jobs: jobs["test"]["strategy"]["matrix"]["python"].pop(),
    "Linux and macOS": lambda jobs: jobs["test"]["strategy"]["matrix"]["system"].pop(),
    "the jars are cached": lambda jobs: jobs["test"]["steps"][2]["with"].update(key="jars"),
    "the wheels are cached": lambda jobs: jobs["test"]["steps"].pop(3),
    "the shards are not": lambda jobs: jobs["test"]["steps"].pop(),
    "not every job counts": lambda jobs: jobs["all"].update(needs=["test"]),
    "short may hang": lambda jobs: jobs["short"].pop("timeout-minutes"),
}


@pytest.mark.parametrize("finding", SPOILED)
def test_spoiled_copy_is_found(finding):
    spoiled = copy.deepcopy(WORKFLOW)
    SPOILED[finding](spoiled["jobs"])
    assert finding in "\n".join(findings(spoiled))


@pytest.mark.bench
@pytest.mark.parametrize("file", [*sorted(FILE.parent.glob("*.yml")), FOR_CLASSES], ids=lambda file: file.stem)
def test_workflow_has_the_known_shape(tmp_path, file):
    """The schema comes with the checker: nothing is fetched."""
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(file.read_text().replace("runs-on:", "run-on:"))
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    ran = subprocess.run([*check, file], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert subprocess.run([*check, wrong], capture_output=True).returncode == 1


def test_workflow_for_classes_runs_what_there_is_and_may_do_no_more_than_read():
    workflow = yaml.safe_load(FOR_CLASSES.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    [job] = workflow["jobs"].values()
    assert "timeout-minutes" in job
    ours = [step["uses"] for step in job["steps"] if "uses" in step]
    assert set(ours) >= {step["uses"] for step in WORKFLOW["jobs"]["test"]["steps"] if "uses" in step}
    [check] = [step for step in job["steps"] if "labs check" in step.get("run", "")]
    words = check["run"].split()
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    arguments = parser.parse_args(words[words.index("check") + 1 :])
    assert (arguments.exercise, arguments.github) == (check["name"], True)
    assert arguments.exercise in EXERCISES
