"""The recorded comparison: whole, made of all engines, and without anything of the machine but its size."""

from __future__ import annotations

import json
import re

import pytest

from labs.judging.engine_comparison import RECORDED, EngineReport, recorded_engines


def test_every_engine_was_judged_in_every_trial():
    report = recorded_engines()
    assert report.engines == ["spark", "flink", "quix", "streams"]
    for engine in report.engines:
        assert {run["guarantee"] for run in report.of("kills", engine=engine)} == {"exactly once", "at least once"}
        assert report.of("outage", engine=engine, timeout_seconds=10.0)
        assert report.of("speed", engine=engine)
    assert report.of("outage", engine="flink", timeout_seconds=240.0), "the timeout that outlives the outage"


def test_exactly_once_lost_and_doubled_nothing_and_each_control_was_doubled():
    report = recorded_engines()
    for run in report.of("kills", guarantee="exactly once"):
        assert (run["lost"], run["duplicated"], run["verdict"]) == (0, 0, "valid"), run
    for run in report.of("kills", guarantee="at least once"):
        assert run["lost"] == 0, run
    for engine in report.engines:
        assert sum(run["duplicated"] for run in report.of("kills", guarantee="at least once", engine=engine)) > 0


def test_it_names_no_place_of_the_machine():
    text = RECORDED.read_text()
    assert not re.findall(r"/(?:tmp|home|root|work)\b|127\.0\.0\.1|[a-f0-9]{8}-", text)
    assert set(recorded_engines().machine) == {"cores", "memory_gib", "system", "processor", "python", "versions"}


def test_ratios_are_of_medians_over_the_seeds(tmp_path):
    runs = [("spark", 2.0), ("spark", 4.0), ("spark", 90.0), ("flink", 1.0), ("flink", None), ("flink", 3.0)]
    made = [{"trial": "speed", "engine": engine, "drained": value} for engine, value in runs]
    (tmp_path / "report.json").write_text(json.dumps({"machine": {}, "size": {}, "runs": made}))
    report = EngineReport(tmp_path / "report.json")
    assert report.ratios("drained") == {"spark": 1.0, "flink": 0.5}
    with pytest.raises(ValueError, match="no run of quix has a drained"):
        report.median("drained", "quix")
