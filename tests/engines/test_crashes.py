"""Each engine is killed once on the way: exactly once nothing is lost or doubled, and a control is found doubled.

Spark's own control is not here: it remembers a batch some milliseconds after it has written it, so one kill at a random
moment seldom doubles anything. Its fault points do, each time (tests/faults/test_job.py and lesson 06).
"""

from __future__ import annotations

import pytest

from labs.commands.main import main
from labs.engines.catalogue import ENGINES
from labs.engines.engine import Work
from labs.engines.environment import ENVIRONMENTS
from labs.pipeline.log.generate import Traffic
from labs.runs.engine_kills import draw_kills, slices
from labs.runs.engine_run import run_engine

LOG = list(Traffic(requests=12_000, seed=7, rate=200.0, clients=20))


@pytest.fixture(scope="module", autouse=True)
def installed():
    """Once a machine: the environments stay in the lab's cache."""
    for name in ENVIRONMENTS:
        assert main(["engines", "install", name]) == 0


def killed_once(engine, exactly_once, broker, tmp_path):
    name = f"{engine}-{'once' if exactly_once else 'control'}"
    work = Work(broker.bootstrap_servers, f"{name}-in", f"{name}-out", tmp_path / "a folder", name, exactly_once)
    run = run_engine(ENGINES[engine], work, LOG, kills=1, seed=7)
    assert (len(run.kills), len(run.recoveries)) == (1, 1), run.audit
    return run.audit


@pytest.mark.parametrize("engine", ENGINES)
def test_a_kill_neither_loses_nor_doubles(engine, broker, tmp_path):
    audit = killed_once(engine, True, broker, tmp_path)
    assert (audit.lost, audit.duplicated, str(audit.verdict)) == (0, 0, "valid"), audit


@pytest.mark.parametrize("engine", ENVIRONMENTS)
def test_the_same_kill_doubles_the_control_and_loses_nothing(engine, broker, tmp_path):
    audit = killed_once(engine, False, broker, tmp_path)
    assert audit.lost == 0, audit
    assert audit.duplicated > 0, audit


def test_kills_are_drawn_alike_for_a_seed_and_fall_into_second_halves():
    assert draw_kills(LOG, 2, seed=3) == draw_kills(LOG, 2, seed=3) != draw_kills(LOG, 2, seed=4)
    assert [access for part in slices(LOG, 2) for access in part] == LOG
    with pytest.raises(ValueError, match="12,000 records are too few for 40 kills"):
        draw_kills(LOG, 40, seed=3)
    with pytest.raises(ValueError, match="-1 kills; expected 0 or more"):
        draw_kills(LOG, -1, seed=3)
