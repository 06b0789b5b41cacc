"""Chaos on the real pipeline: valid with the exactly-once sink.

That it is found invalid with the sink without its marker is lesson 13's control.
"""

from __future__ import annotations

import json
import re

import pytest

from labs.commands.main import main
from labs.faults import chaos_injectors
from labs.faults.chaos_injectors import Journal

FAULTS = ("driver-kill", "driver-point", "broker-kill", "network-cut", "late-commit")


def chaos(capsys, *arguments):
    code = main(["chaos", "--json", *map(str, arguments)])
    shown = capsys.readouterr()
    report = json.loads(shown.out)
    for strike in report["strikes"]:
        said = re.search(rf" s: {strike['kind']}( |$)", shown.err, re.MULTILINE)
        assert said, "without a terminal, each fault is a line as it begins"
    return code, report


@pytest.mark.long
@pytest.mark.timeout(900)
def test_random_kills_of_driver_and_broker_neither_lose_nor_double(capsys, tmp_path):
    # Lesson 13 is a longer run with more kinds of fault, and cold starts; the longest are `make soak`.
    least = ("--least", "driver=2", "broker=1")
    code, report = chaos(capsys, "--spare", "--minutes", 0.3, *least, "--output", tmp_path, "--faults", *FAULTS)
    assert (report["verdict"], code) == ("valid", 0), report["audit"]
    assert report["spare"]
    assert report["driver_kills"] >= 2
    assert report["faults"]["broker-kill"] >= 1
    assert (report["lost"], report["duplicated"], report["conflicting"], report["hanging"]) == (0, 0, 0, 0)
    assert report["expected"] > 1_000
    assert report["recovery"]["kills"] > 0
    [evidence] = tmp_path.iterdir()
    assert sorted(file.name for file in evidence.iterdir()) == ["drivers.log", "report.json", "timeline.png"]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_run_that_is_not_valid_says_why_and_keeps_its_evidence(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_MASTER", "no-such-master")
    monkeypatch.setattr(chaos_injectors, "TOO_MANY", 2)
    code, report = chaos(capsys, "--minutes", 3, "--faults", "late-commit", "--output", tmp_path)
    assert (report["verdict"], code) == ("unknown", 1)
    reason = report["audit"]["reason"]
    assert "the driver ended 2 times before its first batch" in reason
    assert "Master must either be yarn or start with spark, k8s, or local" in reason
    [evidence] = tmp_path.iterdir()
    assert {"kafka", "drivers.log", "report.json"} <= {file.name for file in evidence.iterdir()}


@pytest.mark.long
def test_impossible_fault_is_one_clear_line(capsys):
    assert main(["chaos", "--faults", "meteor"]) == 1
    assert "no fault is called 'meteor'" in capsys.readouterr().err


def test_injector_draws_the_same_for_a_seed():
    class Recording(chaos_injectors.Injector):
        target, gap = "recording", (0.0, 0.001)

        def strike(self, kind):
            drawn.append((kind, self.random.random()))
            if len(drawn) == 20:
                self.calm()

    runs = []
    for seed in (3, 3, 4):
        drawn: list[tuple[str, float]] = []
        each = Recording(("a", "b", "c"), seed, Journal())
        each.start()
        each.join(10)
        runs.append(drawn)
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_strike_that_lasts_has_not_ended_when_it_is_reported():
    reported: list[float | None] = []
    journal = Journal(lambda strike: reported.append(strike.ended))
    with journal.strike("broker-kill") as strike:
        assert reported == [strike.ended] == [None]
    assert strike.ended is not None


def test_injector_that_breaks_ends_and_keeps_its_error():
    class Broken(chaos_injectors.Injector):
        target, gap = "broken", (0.0, 0.0)

        def strike(self, kind):
            raise RuntimeError("no broker to kill")

    broken = Broken(("a",), 1, Journal())
    broken.start()
    broken.join(10)
    assert "no broker to kill" in str(broken.error)
