"""`python -m labs attack`: a game from its seed to the class's table, blind or not, and one clear line for an error."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from labs.commands.main import main
from labs.equipment.waiting import eventually
from labs.runs.attack.sinks import SINKS, wrong_sink

SEEDS = {wrong_sink(seed).name: str(seed) for seed in range(len(SINKS))}
WEAK, STRONGER = SEEDS["idempotent producer only"], SEEDS["marker that expires"]


@pytest.fixture
def typed(monkeypatch):
    """Write orders to the command's standard input."""
    return lambda text: monkeypatch.setattr("sys.stdin", io.StringIO(text))


@pytest.mark.long
def test_game_that_is_won(capsys, tmp_path, typed):
    scores, drawing = tmp_path / "class.jsonl", tmp_path / "a drawing.svg"
    typed("crash driver 1 after row 0 of batch 0  # and again\n")
    options = ["--scores", str(scores), "--player", "Ada", "--draw", str(drawing), "--show", "--hint"]
    assert main(["attack", "--seed", WEAK, *options]) == 0
    out = capsys.readouterr().out
    for part in ('yield "rows"', "hint: ", "  3. driver 1 crashes", "the auditor, at the end: 1"):
        assert part in out
    assert "Your orders: 1; those of the model's shortest schedule: 1." in out
    assert drawing.read_text().startswith("<svg")
    assert json.loads(scores.read_text())["broken"] is True
    assert main(["attack", "--scores", str(scores)]) == 0
    assert re.search(rf"^Ada +{WEAK} +idempotent producer only +1 +1 +yes ", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.long
def test_example_of_the_page_ends_as_the_page_says(capsys, typed):
    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()
    [(order, seed, said)] = re.findall(
        r'echo "(.+)" > orders\.txt\n.+ attack --seed (\d+) .+?\n( {4}the run:.+?)\n\n', page, re.DOTALL
    )
    typed(order + "\n")
    assert main(["attack", "--seed", seed]) == 0
    out = capsys.readouterr().out
    for line in said.splitlines():
        assert line.strip() in out


@pytest.mark.long
def test_blind_game_that_is_lost_tells_no_name(capsys, tmp_path):
    file = tmp_path / "orders.txt"
    file.write_text("crash driver 1 before the commit of batch 1\n")
    options = ["--blind", "--schedule", str(file), "--scores", str(tmp_path / "class.jsonl"), "--show"]
    assert main(["attack", "--seed", STRONGER, *options]) == 1
    out = capsys.readouterr().out
    assert "The auditor found no error: the sink has survived." in out
    assert "expires" not in out
    assert "yield" not in out


@pytest.mark.long
def test_model_solves_it(capsys):
    assert main(["attack", "--seed", WEAK, "--solve"]) == 0
    out = capsys.readouterr().out
    assert "The sink is broken." in out
    assert out.endswith("In orders:\n    crash driver 1 after row 0 of batch 0\n")


@pytest.mark.long
def test_hint_without_orders_is_no_error(capsys, typed):
    typed("\n")
    assert main(["attack", "--seed", WEAK, "--hint"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[-1].startswith("Nothing was carried out: the schedule has no orders; write some lines")
    assert "hint: " in said.out
    assert not said.err


def error_of(capsys) -> str:
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    return lines[0].removeprefix("python -m labs attack: ")


@pytest.mark.bench
def test_orders_that_are_wrong_are_one_line(capsys, typed):
    for text, why in {
        "": "the schedule has no orders",
        "crush driver 1": "line 1: 'crush driver 1' is not an order",
        "\nlose row 0 of batch 7": "line 2 (lose row 0 of batch 7) cannot be carried out: there is no batch 7",
    }.items():
        typed(text)
        assert main(["attack", "--seed", WEAK]) == 2
        assert error_of(capsys).startswith(why)


@pytest.mark.bench
def test_files_that_are_wrong_are_one_line(capsys, tmp_path):
    damaged = tmp_path / "class.jsonl"
    damaged.write_text("no table\n")
    assert main(["attack", "--seed", WEAK, "--scores", str(damaged)]) == 2
    assert "class.jsonl, line 1 is not a score, so nothing was written" in error_of(capsys)
    assert damaged.read_text() == "no table\n"
    assert main(["attack", "--scores", str(damaged)]) == 2
    assert "class.jsonl, line 1 is not a score" in error_of(capsys)
    assert main(["attack", "--seed", WEAK, "--schedule", str(tmp_path / "none.txt")]) == 2
    assert error_of(capsys) == f"there is no file {tmp_path / 'none.txt'}"
    assert main(["attack", "--seed", WEAK, "--scores", str(tmp_path)]) == 2
    assert error_of(capsys) == f"{tmp_path} is a directory, and a file is needed"
    assert main(["attack", "--seed", WEAK, "--draw", str(tmp_path / "none" / "it.svg")]) == 2
    assert "there is no directory" in error_of(capsys)


@pytest.mark.long
def test_seed_that_was_drawn_is_said(capsys, typed):
    typed("")
    assert main(["attack"]) == 2
    assert re.match(r"seed \d+: ", capsys.readouterr().out)


@pytest.mark.long
def test_ctrl_c_ends_the_game_and_all_that_it_has_started(tmp_path):
    orders = tmp_path / "orders.txt"
    orders.write_text("crash driver 1 after the commit of batch 0\n")
    command = [sys.executable, "-m", "labs", "attack", "--seed", STRONGER, "--schedule", str(orders)]
    game = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    driver = "labs.schedules.replay.program"
    children = eventually(lambda: _children(game.pid, driver), timeout=180)
    os.kill(game.pid, signal.SIGINT)
    _, said = game.communicate(timeout=60)
    assert game.returncode == 130
    assert said.splitlines()[-1] == "stopped"
    eventually(lambda: not any(child.is_running() for child in children))


def _children(pid: int, module: str) -> list[psutil.Process]:
    """Return all that a process has started, once a child that runs the module is among it."""
    children = psutil.Process(pid).children(recursive=True)
    return children if any(module in child.cmdline() for child in children) else []
