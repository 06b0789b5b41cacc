"""`python -m labs generate` and `python -m labs demo`."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from labs.commands.demo import _table, check_pictures, in_a_sentence, seeded_log
from labs.commands.main import main
from labs.pipeline.log.access_log import parse_line
from labs.pipeline.log.generate import classroom


@pytest.mark.bench
def test_generate_writes_a_log_that_reads_back(capsys):
    assert main(["generate", "--classroom", "--style", "csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [parse_line(line.encode()) for line in lines] == list(classroom())


@pytest.mark.bench
def test_generate_refuses_a_nonsense_setting_in_one_line(capsys):
    assert main(["generate", "--requests", "10", "--disorder-ms", "99999"]) == 1
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


@pytest.mark.long
@pytest.mark.parametrize("name", ["access.log", "counts.png", "staircase.png"])
def test_demo_never_overwrites_what_it_did_not_make(capsys, tmp_path, name):
    mine = tmp_path / name
    mine.write_text("mine")
    assert main(["demo", "--output", str(tmp_path)]) == 1
    assert f"{mine} is there already, and this command did not make it" in capsys.readouterr().err
    assert mine.read_text() == "mine"
    assert set(tmp_path.iterdir()) == {mine}


@pytest.mark.long
def test_demo_of_a_log_that_nobody_understands_ends_before_the_staircase(spark, broker, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    log = tmp_path / "not a log"
    log.write_text("junk\n")
    assert main(["demo", "--log", str(log), "--output", str(tmp_path / "out")]) == 1
    told = capsys.readouterr()
    assert "NOT ONE of 1 lines was understood as an access" in told.err
    assert "staircase" not in told.out


@pytest.mark.long
@pytest.mark.timeout(900)
def test_demo_climbs_down_to_zero(spark, capsys, tmp_path):
    assert main(["demo", "--json", "--output", str(tmp_path / "plots here")]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["duplicated"] for row in rows] == [40, 16, 12, 8, 0]
    assert {row["lost"] for row in rows} == {0}
    assert rows[-1]["verdict"] == "valid"
    check_pictures((tmp_path / "plots here").glob("*.png"))  # a second demo may overwrite them
    seeded_log(tmp_path / "plots here" / "access.log")
    assert {file.name for file in (tmp_path / "plots here").iterdir()} == {"access.log", "counts.png", "staircase.png"}


def test_demo_ends_with_what_the_staircase_has_shown():
    row = {"fault": "mid_rows", "expected": 48, "lost": 0}
    storm = [
        {**row, "stage": "no checkpoint", "duplicated": 40, "verdict": "invalid"},
        {**row, "stage": "+ batch marker", "duplicated": 0, "verdict": "valid"},
    ]
    said = (
        "with no checkpoint 40 of 48 results are duplicated; with every mechanism 0 results are lost and 0 duplicated."
    )
    assert in_a_sentence(storm).endswith(said)
    console = Console(file=(shown := io.StringIO()), force_terminal=True, width=100)
    console.print(_table(storm))
    assert "\x1b[31minvalid" in shown.getvalue()
    assert "\x1b[32mvalid" in shown.getvalue()
