"""`python -m labs soak` with a bound of seconds: what failed is named, and the exit code says so."""

import re
from pathlib import Path

import pytest

from labs.commands import soak
from labs.commands.main import main

pytestmark = pytest.mark.long

NOTHING = ["soak", "--seeds", "0", "--sessions", "0", "--walks", "0", "--kills", "0", "--no-variants"]


def test_every_repeat_is_run_and_a_failed_one_is_named_and_kept(tmp_path, capsys):
    green, red = tmp_path / "test_green.py", tmp_path / "test_red.py"
    green.write_text("def test_green():\n    pass\n")
    red.write_text("def test_red():\n    assert 1 == 2\n")
    options = [*NOTHING, "--output", str(tmp_path)]
    assert main([*options, "--repeats", "1", "--tests", str(green)]) == 0
    assert len(re.findall(r"repeat-\d  \d+ s  passed", capsys.readouterr().out)) == 1
    assert list(tmp_path.glob("*.log")) == []
    assert main([*options, "--repeats", "1", "--tests", str(red)]) == 1
    said = capsys.readouterr().out
    assert "0 passed, 1 failed" in said
    assert "again: " in said
    assert "-m pytest" in said
    assert "assert 1 == 2" in (tmp_path / "repeat-1.log").read_text()


def test_nothing_to_do_is_no_success_and_a_path_that_is_not_there_is_said(tmp_path, capsys):
    assert main([*NOTHING, "--repeats", "0", "--output", str(tmp_path)]) == 1
    assert main(["soak", "--seeds", "0", "--tests", "tests/attic", "--output", str(tmp_path)]) == 1
    assert "tests/attic is not in" in capsys.readouterr().err
    assert all((soak.ROOT / test).exists() for test in soak.CRASH_TESTS)
    assert Path(soak.ROOT, "Makefile").exists()
