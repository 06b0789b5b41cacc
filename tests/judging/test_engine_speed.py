"""How fast an engine is, measured on the lab's own: what is told of a backlog, and of an engine that is killed."""

from __future__ import annotations

import tempfile
import uuid

import pytest

from labs.engines.engine import Work
from labs.engines.spark_job import SparkEngine
from labs.evidence.auditor.anomalies import Verdict
from labs.judging.engine_run import run_speed
from labs.judging.engine_session import EngineSession
from labs.pipeline.log.generate import Traffic

pytestmark = pytest.mark.long

BACKLOG = 20_000
LOG = list(Traffic(requests=24_000, seed=7, rate=400.0, clients=20))


class KilledAtOnce(SparkEngine):
    def start(self, work):
        process = super().start(work)
        process.kill()
        return process


@pytest.fixture
def work(broker, tmp_path):
    name = f"speed-{uuid.uuid4().hex[:8]}"
    return Work(broker.bootstrap_servers, f"{name}-source", f"{name}-sink", tmp_path, name, True)


def test_a_backlog_is_drained_then_each_result_is_timed_and_all_is_judged(work):
    run = run_speed(SparkEngine(), work, LOG, BACKLOG, seconds=20.0)  # on a busy machine results come seconds late
    assert run.audit.valid, run.audit
    assert run.first_result is not None
    assert run.drained is not None
    assert 0 < run.first_result <= run.drained
    # 4,000 requests at 400 a second of event time make two windows final while they are sent, for 20 clients.
    assert len(run.latencies) >= 20
    assert all(0 < each < 60 for each in run.latencies)
    assert run.memory_mb > 100
    assert run.cores is not None
    assert 0 < run.cores < 64


def test_an_engine_that_ends_by_itself_is_told_of_and_judged_by_what_it_wrote(work, tmp_path, monkeypatch):
    place = tmp_path / "temporary files"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    run = run_speed(KilledAtOnce(), work, LOG, BACKLOG, seconds=6.0)
    assert (run.first_result, run.drained, run.latencies) == (None, None, ())
    assert "ended by itself" in run.audit.reason
    assert run.audit.verdict is not Verdict.VALID
    assert not list(place.iterdir())


def test_a_pace_begins_when_it_is_asked_for(work):
    session = EngineSession(SparkEngine(), work)
    session._ticked -= 60  # as after a minute in which the results of a large backlog were read
    session.send(LOG[:600], seconds=60.0)
    session.idle(0.01)
    assert not session.all_sent
    session.close()
