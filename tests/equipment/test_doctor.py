import json
import os
import subprocess
import sys

import pandas as pd
import pytest

from labs.commands.main import main
from labs.equipment import doctor, jars
from labs.equipment.doctor import GIB, checks
from labs.equipment.machine_checks import Check, CheckFailed, Step, follow
from labs.equipment.topics import admin

NAMES = ["Python", "User", "Packages", "Java", "Jars", "Connector", "Ports", "Memory", "Disk", "Broker", "Spark"]


def fail() -> str:
    raise CheckFailed("nothing there")


def look(name: str) -> Check:
    [step] = [step for step in doctor.MACHINE if step.name == name]
    [check] = follow([Step(step.name, step.look, step.cure)])
    return check


@pytest.mark.long
def test_a_healthy_bench_passes_every_check_in_order(spark, monkeypatch):
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    started: list[str] = []
    found = list(checks(starting=started.append))
    assert [check for check in found if not check.passed] == []
    assert [check.name for check in found] == started == NAMES
    assert all(check.found and not check.cure for check in found)


def test_the_checks_make_a_table():
    table = pd.DataFrame(follow([Step("One", lambda: "1", ""), Step("Two", fail, "make two")]))
    assert table.to_dict("records") == [
        {"name": "One", "passed": True, "found": "1", "cure": ""},
        {"name": "Two", "passed": False, "found": "nothing there", "cure": "make two"},
    ]


def test_what_builds_on_a_failure_is_not_tried():
    tried: list[str] = []

    def build(name: str) -> str:
        tried.append(name)
        return "built"

    steps = [
        Step("Floor", fail, "lay it"),
        Step("Wall", lambda: build("Wall"), "", needs=("Floor",)),
        Step("Roof", lambda: build("Roof"), "", needs=("Wall",)),
        Step("Garden", lambda: "green", ""),
    ]
    assert list(follow(steps)) == [
        Check("Floor", False, "nothing there", "lay it"),
        Check("Wall", None, "not tried, because it needs: Floor"),
        Check("Roof", None, "not tried, because it needs: Wall"),
        Check("Garden", True, "green"),
    ]


def test_the_first_line_of_an_error_is_what_was_found_and_the_rest_leads_to_the_cure():
    def refuse():
        raise RuntimeError("it is broken\nbecause it fell")

    [check] = follow([Step("Vase", refuse, "buy another")])
    assert (check.found, check.cure) == ("it is broken", "because it fell\nbuy another")


def test_an_error_without_a_message_is_named():
    def refuse():
        raise AssertionError

    [check] = follow([Step("Vase", refuse, "buy another")])
    assert (check.passed, check.found) == (False, "AssertionError()")


@pytest.mark.parametrize(("user", "found"), [(0, "make lab AS_ROOT=--allow-root"), (1000, "not root")])
def test_root_is_told_how_jupyterlab_starts(monkeypatch, user, found):
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert look("User").passed
    assert found in look("User").found


def test_wrong_and_missing_packages_are_named(monkeypatch, tmp_path):
    (tmp_path / "requirements.txt").write_text("pandas==0.1   # old\nno-such-package==1.0\n--editable .\npsutil>=1\n")
    monkeypatch.setattr(doctor, "REQUIREMENTS", tmp_path / "requirements.txt")
    check = look("Packages")
    assert check.found == f"pandas {pd.__version__} instead of 0.1; no-such-package missing instead of 1.0"
    assert "make setup" in check.cure


def test_an_old_python_is_told(monkeypatch):
    monkeypatch.setattr(doctor, "OLDEST_PYTHON", (99, 0))
    assert (look("Python").passed, "Install Python" in look("Python").cure) == (False, True)


def test_a_connector_of_another_version_is_told(monkeypatch, tmp_path):
    other = tmp_path / "spark-sql-kafka-0-10_2.12-3.5.0.jar"
    monkeypatch.setattr(doctor, "connector_jars", lambda: (other,))
    assert look("Connector").found.startswith("3.5.0 for Scala 2.12, but Spark is 4.2.0 for Scala 2.13")


def test_a_refused_jar_comes_with_its_own_cure(monkeypatch):
    monkeypatch.setattr(jars, "broker_jars", jars.broker_jars.__wrapped__)
    monkeypatch.setattr(jars, "read_sums", lambda endpoint: {"absent-1.0.jar": "0"})
    monkeypatch.setattr(jars, "_fetch", lambda endpoint, anew=False: [])
    check = look("Jars")
    assert check.found.startswith("absent-1.0.jar did not come with")
    assert check.cure == "Run: python -m labs setup"


@pytest.mark.parametrize(("available", "passed"), [(1, False), (3, True), (8, True)])
def test_too_little_memory_fails_and_little_is_told(monkeypatch, available, passed):
    monkeypatch.setattr(doctor, "_available_memory", lambda: available * GIB)
    check = look("Memory")
    assert check.passed is passed
    assert f"{available}.0 GiB available" in check.found
    assert ("4 are better" in check.found) is (available == 3)


def test_a_full_disk_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "LEAST_DISK", 1 << 62)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "not" / "yet" / "there"))
    assert f"GB free in {tmp_path}/not/yet/there" in look("Disk").found


@pytest.mark.long
def test_the_command_prints_one_json_object(spark, broker, monkeypatch, capsys):
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    assert main(["doctor", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["passed"] is True
    assert [check["name"] for check in said["checks"]] == NAMES
    assert "KAFKA_BOOTSTRAP_SERVERS" in said["checks"][-2]["found"]


@pytest.mark.long
def test_a_named_kafka_is_left_as_it_was(spark, broker, monkeypatch):
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    with admin(broker.bootstrap_servers) as client:
        before = set(client.list_topics())
        assert all(check.passed for check in checks())
        assert {name for name in client.list_topics() if not name.startswith("__")} <= before


@pytest.mark.long
def test_the_command_prints_a_line_per_check_and_fails_if_one_does(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "MACHINE", [Step("Good", lambda: "[fine]", ""), Step("Bad", fail, "one\ntwo")])
    monkeypatch.setattr(doctor, "bench", lambda stack: [Step("Last", fail, "", needs=("Bad",))])
    assert main(["doctor"]) == 1
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["✓", "Good", "[fine]"],
        ["✗", "Bad", "nothing", "there"],
        ["one"],
        ["two"],
        ["–", "Last", "not", "tried,", "because", "it", "needs:", "Bad"],
    ]


@pytest.mark.bench
def test_a_missing_package_is_one_clear_line():
    code = "import sys; sys.modules['kafka'] = None; from labs.commands.main import main; sys.exit(main(['doctor']))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ)
    assert ran.returncode == 1
    assert ran.stderr.startswith("python -m labs doctor: the package kafka is missing. Run: make setup")
    assert "Traceback" not in ran.stderr
