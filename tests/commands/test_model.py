"""`python -m labs model`: the table of the stages, one stage's schedule in words and drawn, and clear errors."""

from __future__ import annotations

import json

import pytest

from labs.commands.main import main

ONE = ["model", "--stage", "at least once"]


def test_table(capsys):
    assert main(ONE) == 0
    head, row, memory = capsys.readouterr().out.splitlines()
    assert head.split() == ["stage", "found", "steps", "states", "seconds"]
    assert row.split()[:5] == ["at", "least", "once", "doubled", "4"]
    assert memory.endswith("MB of memory")


def test_json(capsys):
    assert main([*ONE, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["stage"], said["anomaly"], said["complete"], said["events"]) == ("at least once", "doubled", True, 4)


def test_schedule_in_words_and_drawn(capsys, tmp_path):
    drawing = tmp_path / "a drawing.svg"
    assert main([*ONE, "--show", "--draw", str(drawing)]) == 0
    assert "network delivers driver 1's record 0 of batch 0: ok" in capsys.readouterr().out
    assert drawing.read_text().startswith("<svg")


def test_what_happened_on_kafka_is_drawn_as_it_went_over_the_wire(capsys, tmp_path):
    drawing = tmp_path / "happened.svg"
    assert main(["model", "--stage", "idempotent producer", "--replay", "--draw", str(drawing)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[-4:] == ["duplicate", "1", "of", "1"]
    assert "idempotent producer: doubled" in drawing.read_text()
    assert "driver 2 sends record 0 of batch 0: ok" in drawing.read_text()


def test_limit_is_said(capsys):
    assert main(["model", "--stage", "the sink", "--limit", "200"]) == 0
    assert "gave up" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--draw", "all.svg"], "--draw draws one stage"),
        (["--stage", "the sink", "--rows", "1", "--batches", "1", "--draw", "x.svg"], "there is nothing to draw"),
    ],
)
def test_impossible_is_one_clear_line(capsys, arguments, why):
    assert main(["model", *arguments]) == 1
    line = capsys.readouterr().err.strip().splitlines()[-1]  # after the progress
    assert why in line


def test_unknown_stage_or_bound_is_an_error_of_usage(capsys):
    for arguments in (["--stage", "perfect"], ["--rows", "0"]):
        with pytest.raises(SystemExit):
            main(["model", *arguments])
    assert "invalid choice: 'perfect'" in capsys.readouterr().err
