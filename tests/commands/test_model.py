"""`python -m labs model`: the table of the stages, one stage's schedule in words and drawn, and clear errors."""

from __future__ import annotations

import json

import pytest

from labs.commands.main import main

ONE = ["model", "--stage", "at least once"]


@pytest.mark.bench
def test_table(capsys):
    assert main(ONE) == 0
    head, row, memory = capsys.readouterr().out.splitlines()
    assert head.split() == ["stage", "found", "steps", "states", "seconds"]
    assert row.split()[:5] == ["at", "least", "once", "doubled", "4"]
    assert memory.endswith("MB of memory")


@pytest.mark.bench
def test_json(capsys):
    assert main([*ONE, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["stage"], said["anomaly"], said["complete"], said["events"]) == ("at least once", "doubled", True, 4)


@pytest.mark.long
def test_schedule_in_words_and_drawn(capsys, tmp_path):
    drawing = tmp_path / "a drawing.svg"
    assert main([*ONE, "--show", "--draw", str(drawing)]) == 0
    assert "network delivers driver 1's record 0 of batch 0: ok" in capsys.readouterr().out
    assert drawing.read_text().startswith("<svg")


@pytest.mark.long
def test_what_happened_on_kafka_is_drawn_as_it_went_over_the_wire(capsys, tmp_path):
    drawing = tmp_path / "happened.svg"
    assert main(["model", "--stage", "idempotent producer", "--replay", "--draw", str(drawing)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[-4:] == ["duplicate", "1", "of", "1"]
    assert "idempotent producer: doubled" in drawing.read_text()
    assert "driver 2 sends record 0 of batch 0: ok" in drawing.read_text()


@pytest.mark.long
def test_schedule_that_was_saved_is_shown_and_drawn(capsys, tmp_path):
    saved, drawing = tmp_path / "saved.json", tmp_path / "a drawing.svg"
    assert main([*ONE, "--save", str(saved)]) == 0
    capsys.readouterr()
    assert main(["model", "--schedule", str(saved), "--show", "--draw", str(drawing)]) == 0
    assert capsys.readouterr().out.startswith("at least once: doubled\n  1. driver 1 plans batch 0")
    assert drawing.read_text().startswith("<svg")


@pytest.mark.long
def test_what_is_only_modelled_is_not_replayed_and_that_is_said(capsys, tmp_path):
    saved = tmp_path / "saved.json"
    assert main(["model", "--stage", "by executors, uncounted", "--save", str(saved)]) == 0
    assert main(["model", "--schedule", str(saved), "--replay"]) == 0
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.split("  ")[0] == "by executors, uncounted"
    assert said.endswith("lost          not replayed: it is only modelled")


@pytest.mark.long
def test_schedule_from_a_file_is_replayed_and_what_differs_is_said(capsys, tmp_path):
    saved = tmp_path / "saved.json"
    assert main(["model", "--stage", "offset last", "--save", str(saved)]) == 0
    assert main(["model", "--schedule", str(saved), "--replay"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[-4:] == ["duplicate", "1", "of", "1"]
    saved.write_text(saved.read_text().replace("doubled", "lost"))
    assert main(["model", "--schedule", str(saved), "--replay"]) == 1
    assert "the model says lost, and the auditor DUPLICATE" in capsys.readouterr().out


@pytest.mark.bench
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("no JSON", "a schedule is JSON"),
        ('{"stage": "perfect", "events": []}', "there is no stage 'perfect'"),
        (
            '{"stage": "the sink", "events": [{"actor": "driver 1", "action": "plan", "batch": 7}]}',
            "step 1: there is no batch 7; the batches are 0 to 1",
        ),
        (
            '{"stage": "the sink", "events": [{"actor": "driver 1", "action": "pray"}]}',
            "step 1: driver 1 cannot 'pray'",
        ),
    ],
)
def test_file_that_is_no_schedule_is_one_clear_line(capsys, tmp_path, text, why):
    (tmp_path / "it.json").write_text(text)
    assert main(["model", "--schedule", str(tmp_path / "it.json"), "--replay"]) == 1
    assert why in capsys.readouterr().err


@pytest.mark.bench
def test_file_that_cannot_be_read_is_one_clear_line(capsys, tmp_path):
    for file, why in {
        tmp_path / "none.json": f"there is no file {tmp_path}/none.json",
        tmp_path: "is a directory",
    }.items():
        assert main(["model", "--schedule", str(file)]) == 1
        said = capsys.readouterr().err
        assert why in said
        assert "Errno" not in said


@pytest.mark.long
def test_coverage_says_how_often_each_kind_of_step_was_taken(capsys):
    assert main([*ONE, "--coverage"]) == 0
    said = [line.split(maxsplit=1)[1] for line in capsys.readouterr().out.splitlines()[2:-1]]
    assert {"driver plan", "driver row", "network deliver row", "network lose row", "supervisor start"} <= set(said)


@pytest.mark.long
def test_limit_is_said(capsys):
    assert main(["model", "--stage", "the sink", "--limit", "200"]) == 0
    assert "gave up" in capsys.readouterr().out


@pytest.mark.bench
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--draw", "all.svg"], "--draw draws one stage"),
        (["--stage", "at least once", "--save", "nowhere/it.json"], "nowhere is no directory"),
        (["--stage", "the sink", "--rows", "1", "--batches", "1", "--draw", "x.svg"], "there is nothing to draw"),
    ],
)
def test_impossible_is_one_clear_line(capsys, arguments, why):
    assert main(["model", *arguments]) == 1
    line = capsys.readouterr().err.strip().splitlines()[-1]  # after the progress
    assert why in line


@pytest.mark.bench
def test_unknown_stage_or_bound_is_an_error_of_usage(capsys):
    for arguments in (["--stage", "perfect"], ["--rows", "0"]):
        with pytest.raises(SystemExit):
            main(["model", *arguments])
    assert "invalid choice: 'perfect'" in capsys.readouterr().err
