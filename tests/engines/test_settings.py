"""Settings are data: each has a reason, differs from the control's where it must, and is what a run is given."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from labs.commands.main import main
from labs.engines.catalogue import ENGINES, engine_called
from labs.engines.engine import NAME, TRANSACTION_TIMEOUT_MS, Work
from labs.engines.environment import LOCKS
from labs.engines.flink import latest_checkpoint
from labs.equipment.jars import FLINK, flink_connector_jars, read_sums

ROOT = Path(__file__).parents[2]


def work(exactly_once: bool) -> Work:
    return Work("127.0.0.1:1", "accesses", "counts", Path("/tmp/a folder"), "run-7", exactly_once)


@pytest.mark.parametrize("engine", ENGINES.values(), ids=list(ENGINES))
def test_every_setting_has_a_reason_and_the_control_differs(engine):
    once, control = engine.settings(True), engine.settings(False)
    assert all(each.name and each.value and len(each.why) > 5 for each in (*once, *control))
    assert len({each.name for each in once}) == len(once)
    assert {each[:2] for each in once} != {each[:2] for each in control}
    assert any(str(TRANSACTION_TIMEOUT_MS) in each.value for each in once)
    assert engine.promise.endswith(".")


@pytest.mark.parametrize("engine", ENGINES.values(), ids=list(ENGINES))
@pytest.mark.parametrize("exactly_once", [True, False])
def test_how_often_is_committed_is_one_setting(engine, exactly_once):
    each_second, each_five = engine.settings(exactly_once), engine.settings(exactly_once, commit_seconds=5)
    [(one, five)] = [pair for pair in zip(each_second, each_five, strict=True) if pair[0] != pair[1]]
    assert "1" in one.value
    assert five.value == one.value.replace("1", "5", 1)


@pytest.mark.bench
def test_seconds_between_commits_are_a_whole_number(capsys):
    with pytest.raises(SystemExit):
        main(["engines", "compare", "--engines", "flink", "--commit-seconds", "0"])
    assert "'0' is not a whole number from 1 to 60" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["flink", "quix", "streams"])
@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_run_is_given_what_is_shown_and_its_own_name(name, exactly_once):
    engine: Any = ENGINES[name]
    order = str(engine.order(work(exactly_once)))
    for each in engine.settings(exactly_once):
        if name == "quix":
            assert f"'{each.name}': " in order
        else:
            assert f"'{each.name.rpartition(': ')[2]}': '{each.value.replace(NAME, 'run-7')}'" in order
    assert NAME not in order
    assert "run-7" in order


@pytest.mark.parametrize("engine", ["flink", "quix"])
def test_lock_has_what_was_chosen_and_a_sum_for_everything(engine):
    chosen = re.findall(r"^([\w-]+==[\w.]+)", LOCKS.joinpath(f"{engine}.txt").read_text(), re.MULTILINE)
    lock = LOCKS.joinpath(f"{engine}.lock").read_text()
    entries = [entry for entry in re.split(r"\n(?=[^\s#])", lock) if not entry.startswith("#")]
    assert len(entries) > 30
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []
    assert chosen
    assert set(chosen) <= {entry.split()[0] for entry in entries}
    assert not re.findall(r"://|--(?:extra-)?index|--find-links", lock)
    assert re.search(rf"^ENGINES := .*\b{engine}\b", ROOT.joinpath("Makefile").read_text(), re.MULTILINE)


def test_connector_is_the_one_for_the_locked_flink():
    [flink] = re.findall(r"^apache-flink==(\d+\.\d+)", LOCKS.joinpath("flink.txt").read_text(), re.MULTILINE)
    assert FLINK.endswith(f"-{flink}")
    assert {jar.name for jar in flink_connector_jars()} == read_sums(FLINK).keys()


def test_latest_checkpoint_is_the_newest_complete_one(tmp_path):
    assert latest_checkpoint(tmp_path) is None
    for name in ("a/chk-2", "a/chk-9", "b/chk-10"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "_metadata").touch()
    (tmp_path / "b" / "chk-11").mkdir()  # the kill came before it was complete
    assert latest_checkpoint(tmp_path) == tmp_path / "b" / "chk-10"


def test_an_engine_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(ValueError, match="no engine is called 'storm'; there are spark, flink, quix, streams"):
        engine_called("storm")
