"""`python -m labs generate` and `python -m labs demo`."""

from __future__ import annotations

import json

import pytest

from labs.commands import main
from labs.pipeline.access_log import parse_line
from labs.pipeline.generate import classroom


def test_generate_writes_a_log_that_reads_back(capsys):
    assert main(["generate", "--classroom", "--style", "csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [parse_line(line.encode()) for line in lines] == list(classroom())


def test_generate_refuses_a_nonsense_setting_in_one_line(capsys):
    assert main(["generate", "--requests", "10", "--disorder-ms", "99999"]) == 1
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


@pytest.mark.timeout(300)
def test_demo_climbs_down_to_zero(spark, capsys, tmp_path):
    assert main(["demo", "--json", "--output", str(tmp_path / "plots here")]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["duplicated"] for row in rows] == [40, 16, 12, 8, 0]
    assert {row["lost"] for row in rows} == {0}
    assert rows[-1]["verdict"] == "valid"
    assert {file.name for file in (tmp_path / "plots here").iterdir()} == {"access.log", "counts.png", "staircase.png"}
