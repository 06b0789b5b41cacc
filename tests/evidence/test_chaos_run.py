"""Chaos on the real pipeline: valid with the exactly-once sink, and found invalid with the other one."""

from __future__ import annotations

import json

import pytest

from labs.commands.main import main
from labs.evidence.chaos_run import run_chaos
from labs.faults.chaos import ChaosPlan, lane
from labs.faults.chaos.journal import Journal

FAULTS = ("driver-kill", "driver-point", "broker-kill", "network-cut", "late-commit")


def chaos(capsys, *arguments):
    code = main(["chaos", "--json", *map(str, arguments)])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.timeout(600)
def test_random_kills_of_driver_and_broker_neither_lose_nor_double(capsys, tmp_path):
    least = ("--least", "driver=5", "broker=3")
    code, report = chaos(capsys, "--minutes", 1, *least, "--output", tmp_path, "--faults", *FAULTS)
    assert (report["verdict"], code) == ("valid", 0), report["audit"]
    assert report["driver_kills"] >= 5
    assert report["faults"]["broker-kill"] >= 3
    assert (report["lost"], report["duplicated"], report["conflicting"], report["hanging"]) == (0, 0, 0, 0)
    assert report["expected"] > 1_000
    assert report["recovery"]["kills"] > 0
    [evidence] = tmp_path.iterdir()
    assert sorted(file.name for file in evidence.iterdir()) == ["drivers.log", "report.json", "timeline.png"]


@pytest.mark.timeout(600)
def test_the_same_with_the_at_least_once_sink_is_found_invalid_and_keeps_its_evidence(capsys, tmp_path):
    arguments = (
        "--sink",
        "at-least-once",
        "--faults",
        "driver-point",
        "--minutes",
        0.1,
        "--least",
        "driver=3",
        "--output",
        tmp_path,
    )
    code, report = chaos(capsys, *arguments)
    assert (report["verdict"], code) == ("invalid", 1)
    assert report["duplicated"] > 0
    assert report["lost"] == 0
    [evidence] = tmp_path.iterdir()
    assert {"kafka", "checkpoint"} <= {file.name for file in evidence.iterdir()}


@pytest.mark.timeout(300)
def test_job_that_never_works_is_unknown_and_says_why(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_MASTER", "no-such-master")
    report = run_chaos(ChaosPlan(minutes=3, kinds=()), tmp_path / "chaos")
    assert report.audit.verdict == "unknown"
    assert "the driver ended 8 times before its first batch" in report.audit.reason
    assert "Master must either be yarn or start with spark, k8s, or local" in report.audit.reason


def test_impossible_fault_is_one_clear_line(capsys):
    assert main(["chaos", "--faults", "meteor"]) == 1
    assert "no fault is called 'meteor'" in capsys.readouterr().err


def test_lane_draws_the_same_for_a_seed():
    class Recording(lane.Lane):
        name_of_lane, gap = "recording", (0.0, 0.001)

        def strike(self, kind):
            drawn.append((kind, self.random.random()))
            if len(drawn) == 20:
                self.calm()

    runs = []
    for seed in (3, 3, 4):
        drawn = []
        each = Recording(("a", "b", "c"), seed, Journal())
        each.start()
        each.join(10)
        runs.append(drawn)
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_lane_that_breaks_ends_and_keeps_its_error():
    class Broken(lane.Lane):
        name_of_lane, gap = "broken", (0.0, 0.0)

        def strike(self, kind):
            raise RuntimeError("no broker to kill")

    broken = Broken(("a",), 1, Journal())
    broken.start()
    broken.join(10)
    assert "no broker to kill" in str(broken.error)
