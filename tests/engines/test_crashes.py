"""Each engine is killed once on the way: exactly once nothing is lost or doubled, and a control is found doubled.

And each is struck at its commit, and away for longer than its transactions last: what is noted before it is committed,
as in Flink's two phases, is then lost; what is noted with it is counted again.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from labs.engines.catalogue import ENGINES
from labs.engines.engine import TEMPORARY, Work
from labs.faults.proxy import proxied_broker
from labs.judging.engine_run import run_engine, run_outage
from labs.judging.workloads import Count
from tests.engines.conftest import USABLE

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("installed")]

WORKLOAD = Count(12_000, 1, seed=7)
TRIES = 8  # an engine that notes what it has written once a second may have done so just before a kill


def leftovers() -> set[Path]:
    """Return what Flink has left where Java keeps temporary files unless it is told otherwise: 44 MB for each kill."""
    return set(Path("/tmp").glob("flink-*"))


def forgetful_topics(servers: str, name: str) -> list[str]:
    """Return the topics of a run in which Kafka deletes what is as old as the log, such as an engine's state."""
    client, forgetful = AdminClient({"bootstrap.servers": servers}), []
    topics = [topic for topic in client.list_topics(timeout=10).topics if topic.startswith(name)]
    for resource, said in client.describe_configs([ConfigResource("topic", topic) for topic in topics]).items():
        settings = {entry.name: entry.value for entry in said.result(10).values()}
        age_ms, kept_ms = time.time() * 1000 - WORKLOAD.log[0][0], int(settings["retention.ms"])
        if "delete" in settings["cleanup.policy"] and 0 <= kept_ms <= age_ms:
            forgetful.append(resource.name)
    return forgetful


def killed_once(engine, exactly_once, broker, tmp_path, attempt=1):
    name = f"{engine}-{'once' if exactly_once else 'control'}-{attempt}"
    folder = tmp_path / name / "a folder"
    folder.parent.mkdir()
    work = Work(broker.bootstrap_servers, f"{name}-in", f"{name}-out", folder, name, exactly_once)
    before = leftovers()
    run = run_engine(ENGINES[engine], work, WORKLOAD, kills=1, seed=6 + attempt)
    assert leftovers() <= before
    assert not (folder / TEMPORARY).exists()
    assert forgetful_topics(broker.bootstrap_servers, name) == []
    assert (len(run.kills), len(run.recoveries)) == (1, 1), run.audit
    assert run.recoveries[0] > 0.5, "no engine starts so soon: a result from before the kill was taken for a new one"
    return run.audit


@pytest.mark.parametrize("engine", USABLE)
def test_a_kill_neither_loses_nor_doubles(engine, broker, tmp_path):
    audit = killed_once(engine, True, broker, tmp_path)
    assert (audit.lost, audit.duplicated, str(audit.verdict)) == (0, 0, "valid"), audit


@pytest.mark.parametrize("engine", USABLE)
def test_the_same_kill_doubles_the_control_and_loses_nothing(engine, broker, tmp_path):
    for attempt in range(1, TRIES + 1):
        audit = killed_once(engine, False, broker, tmp_path, attempt)
        assert audit.lost == 0, audit
        if audit.duplicated:
            break
    assert audit.duplicated > 0, f"in none of {TRIES} runs; the last: {audit}"


@pytest.mark.soak
@pytest.mark.parametrize(("engine", "loses"), [(name, name == "flink") for name in USABLE])
def test_an_outage_longer_than_the_transactions_loses_what_was_noted_before_its_commit(engine, loses, tmp_path):
    with proxied_broker() as (broker, proxy):
        work = Work(broker.bootstrap_servers, "in", "out", tmp_path / "a folder", engine, True, 10_000)
        run = run_outage(ENGINES[engine], work, WORKLOAD, proxy, seed=7, outage_seconds=16)
    steps = {what: second for second, what in reversed(run.steps)}
    assert steps["rows in Kafka"] <= steps["commit asked for"] <= steps["killed"] < steps["aborted by Kafka"] < 16, run
    assert run.audit.duplicated == 0, run
    assert (run.audit.lost > 0) == loses, run
    if loses:
        assert steps["rows in Kafka"] < steps["noted as done"] < steps["commit asked for"], run
