"""Two-phase commit by hand: killed between any two of its steps, and finished by somebody else."""

from __future__ import annotations

import io
import socket
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from kafka.errors import ConcurrentTransactionsError, ProducerFencedError
from pyspark.errors import StreamingQueryException

from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.equipment.topics import admin, create_topic
from labs.equipment.waiting import eventually
from labs.evidence.auditor.audit import audit
from labs.evidence.readers.results import read_committed, read_results, read_visible
from labs.evidence.readers.transactions import settle
from labs.faults.fault_points import FaultPoints
from labs.faults.proxy import Request, proxied_broker
from labs.pipeline.query import ip_count
from labs.pipeline.two_phase.coordinator import (
    Decision,
    DecisionConflict,
    DecisionLog,
    TornDecision,
    recover,
)
from labs.pipeline.two_phase.end_transaction import (
    BrokerConnection,
    FinishFailed,
    TransactionLost,
    end_once,
    finish,
    lingering,
    partition_of,
    read_message,
)
from labs.pipeline.two_phase.prepared import PreparedTransaction, PrepareFailed, PreparingProducer
from tests.conftest import RECORDS_PER_BATCH
from tests.pipeline.two_phase_run import PARTICIPANTS, POINTS, Run

DECIDED = ("after_decision", "between_ends", "after_ends")


@pytest.fixture
def run(broker, topic, tmp_path):
    """Make a run of a fresh name over a fresh topic."""

    def run(**options):
        return Run(broker.bootstrap_servers, topic(), f"two-phase-{uuid.uuid4().hex}", str(tmp_path), **options)

    return run


@pytest.fixture(scope="module")
def proxied():
    """A broker that may be killed, behind a network that may fail."""
    with proxied_broker() as (broker, proxy):
        yield broker, proxy


@pytest.fixture
def fragile(proxied, tmp_path):
    """A run on that broker."""
    broker, _ = proxied
    name = uuid.uuid4().hex
    return Run(broker.bootstrap_servers, create_topic(broker.bootstrap_servers, name, 1), name, str(tmp_path))


def results_of(run):
    """What readers see once the coordinator has told every partition what it knows."""
    settle(run.bootstrap_servers, run.topic)
    return read_visible(run.bootstrap_servers, run.topic)


def audited(run):
    return audit(run.expected, read_results(run.bootstrap_servers, run.topic))


def state_of(bootstrap_servers, transactional_id):
    with admin(bootstrap_servers) as kafka:
        [now] = kafka.describe_transactions([transactional_id]).values()
    return now.state.value


@pytest.mark.long
@pytest.mark.parametrize("point", POINTS)
def test_run_killed_at_any_point_is_finished_by_another_process_exactly_once(run, point):
    run = run()
    run.publish_and_die_at(point)
    done = run.recover()
    if point in DECIDED:
        assert len(done.committed) == PARTICIPANTS
    else:
        assert results_of(run) == []
        run.publish()
    assert audited(run).valid, audited(run)
    assert lingering(run.bootstrap_servers, run.prefix) == []
    assert not done.lost
    assert not done.failed


@pytest.mark.long
@pytest.mark.parametrize("point", POINTS)
def test_run_killed_at_any_point_of_an_abort_leaves_nothing_visible_and_nothing_open(run, point):
    run = run(commit=False)
    run.publish_and_die_at(point)
    assert not run.recover().committed
    assert results_of(run) == []
    assert lingering(run.bootstrap_servers, run.prefix) == []
    assert run.decisions.read() == ([], {})


@pytest.mark.long
def test_decision_is_carried_out_in_full_or_not_at_all(run):
    run = run()
    run.publish_and_die_at("between_ends")
    half = audit(run.expected, results_of(run))
    assert half.lost == len(run.expected) / PARTICIPANTS  # as readers saw it between the two commits
    run.recover()
    assert audited(run).valid


@pytest.mark.long
def test_recovery_may_itself_be_interrupted_and_repeated(run):
    run = run()
    prepared = run.prepare()
    run.decisions.record(1, True, prepared)
    finish(prepared[0], True, run.bootstrap_servers)
    assert len(run.recover().committed) == PARTICIPANTS
    assert run.recover().committed == []
    assert audited(run).valid


@pytest.mark.long
@pytest.mark.parametrize("keep", [0, 1, 0.5, 0.99])
def test_torn_decision_is_no_decision(run, keep):
    run = run()
    run.decisions.record(1, True, run.prepare())
    [record] = run.decisions.directory.iterdir()
    line = record.read_text()
    record.write_text(line[: int(len(line) * keep)] if keep < 1 else line.replace('"commit": true', '"commit": null'))
    done = run.recover()
    assert len(done.aborted) == PARTICIPANTS
    assert [file.name for file in done.torn] == ["1.json"]
    assert "1.json" in str(done)
    assert results_of(run) == []
    run.publish()  # the number can be used again
    assert audited(run).valid


@pytest.mark.long
def test_missing_decision_is_no_decision(run):
    run = run()
    prepared = run.prepare()
    done = recover(DecisionLog(run.directory), run.bootstrap_servers, run.prefix)
    assert done.aborted == sorted(prepared)
    assert results_of(run) == []


@pytest.mark.long
def test_decision_about_an_older_transaction_does_not_commit_a_newer_one_of_the_same_id(run):
    run = run()
    old, new = run.prepare(1), run.prepare(2)
    run.decisions.record(1, True, old)
    done = run.recover()
    assert done.failed.keys() == set(old)
    assert done.aborted == new
    assert results_of(run) == []
    assert [decision.number for decision in run.decisions.read()[0]] == [1]  # and it is not forgotten


def test_decision_cannot_be_changed(tmp_path):
    log, prepared = DecisionLog(tmp_path), PreparedTransaction("x", 1, 2)
    assert log.record(1, True, [prepared]) == log.record(1, True, [prepared])
    with pytest.raises(DecisionConflict, match="differently"):
        log.record(1, False, [prepared])
    assert log.read() == ([Decision(1, True, (prepared,))], {})
    (tmp_path / "2.json").write_text("{")
    with pytest.raises(TornDecision):
        log.record(2, True, [prepared])


@pytest.mark.long
def test_recovery_leaves_other_prefixes_alone(run):
    ours, theirs = run(), run()
    theirs.prepare()
    assert ours.recover().aborted == []
    assert len(lingering(theirs.bootstrap_servers, theirs.prefix)) == PARTICIPANTS
    theirs.recover()


def lingering_as_soon_as_a_broker_answers(run):
    """Ask what is open before the broker has loaded what it knows of transactions."""

    def answers():
        with BrokerConnection(run.bootstrap_servers) as connection:
            return connection.features()

    eventually(answers, timeout=60, interval=0.01)
    return lingering(run.bootstrap_servers, run.prefix)


@pytest.mark.long
@pytest.mark.parametrize("moment", ["before_decision", "after_decision"])
def test_broker_killed_and_restarted_in_between_keeps_what_was_prepared(proxied, fragile, moment):
    broker, _ = proxied
    prepared = fragile.prepare()
    if moment == "after_decision":
        fragile.decisions.record(1, True, prepared)
    broker.kill()
    with ThreadPoolExecutor() as pool:
        asked_early = pool.submit(lingering_as_soon_as_a_broker_answers, fragile)
        broker.start()
        assert asked_early.result() == prepared
    if moment == "before_decision":
        fragile.decisions.record(1, True, prepared)
    assert fragile.recover().committed == prepared
    assert audited(fragile).valid


@pytest.mark.parametrize(
    ("transactional_id", "partition"), [("", 0), ("job-1", 49), ("größer", 15), ("polygenelubricants", 0), ("🦘", 26)]
)
def test_partition_of_an_id_is_that_of_java(transactional_id, partition):
    assert partition_of(transactional_id, 50) == partition


@pytest.mark.parametrize(("name", "partition"), [("counter", 0), ("job-send", 1), ("job-new", 2)])
def test_coordinator_of_a_name_is_found_as_kafka_finds_it(name, partition):
    assert partition_of(name, 3) == partition  # as seen on a broker's disk


@pytest.mark.long
def test_finish_goes_on_to_the_next_broker_when_the_first_is_frozen(run):
    run = run()
    with socket.create_server(("127.0.0.1", 0)) as frozen:  # the kernel accepts, and nobody answers
        servers = f"127.0.0.1:{frozen.getsockname()[1]},{run.bootstrap_servers}"
        for prepared in run.prepare():
            finish(prepared, True, servers, timeout=4)
    assert audited(run).valid


@pytest.mark.long
def test_finish_waits_for_a_broker_that_is_away(proxied, fragile):
    broker, _ = proxied
    prepared = fragile.prepare()
    broker.kill()
    with pytest.raises(TimeoutError, match=r"is committed is not known.*at no risk"):
        finish(prepared[0], True, fragile.bootstrap_servers, timeout=0.3)
    with ThreadPoolExecutor() as pool:
        ends = [pool.submit(finish, each, True, fragile.bootstrap_servers) for each in prepared]
        broker.start()
        for end in ends:
            end.result()
    assert audited(fragile).valid


@pytest.mark.long
def test_finish_repeats_while_kafka_answers_concurrent_transactions(proxied, fragile):
    _, proxy = proxied
    [first, second] = fragile.prepare()
    finish(second, True, fragile.bootstrap_servers)
    eventually(lambda: state_of(fragile.bootstrap_servers, second.transactional_id) == "CompleteCommit")

    held = proxy.hold_next_request(Request.WRITE_TXN_MARKERS, cut_client=False)
    finish(first, True, fragile.bootstrap_servers)  # decided; the markers are on their way
    held.wait()
    with pytest.raises(ConcurrentTransactionsError):
        end_once(first, True, fragile.bootstrap_servers)
    again = threading.Thread(target=finish, args=(first, True, fragile.bootstrap_servers))
    tries = ends_seen(proxy, first)
    again.start()
    eventually(lambda: ends_seen(proxy, first) > tries + 3)
    assert again.is_alive()
    held.deliver()
    again.join(30)
    assert not again.is_alive()
    assert audited(fragile).valid


def ends_seen(proxy, prepared):
    return sum(
        (p.kind, p.direction, p.transactional_id) == (Request.END_TXN, "request", prepared.transactional_id)
        for p in proxy.log
    )


@pytest.mark.long
@pytest.mark.parametrize("commit", [True, False])
def test_lost_answer_to_end_txn_does_not_matter(proxied, fragile, commit):
    _, proxy = proxied
    lost = proxy.drop_next_response(Request.END_TXN)
    for prepared in fragile.prepare():
        finish(prepared, commit, fragile.bootstrap_servers)
    assert lost.struck.is_set()
    results = results_of(fragile)
    assert audit(fragile.expected, results).valid if commit else results == []


@pytest.mark.long
def test_cluster_without_the_new_transactions_gets_the_older_request(proxied, fragile):
    broker, _ = proxied

    def transaction_version(level, how="UPGRADE"):
        with admin(broker.bootstrap_servers) as kafka:
            kafka.update_features({"transaction.version": (how, level)})
            eventually(lambda: kafka.describe_features()["transaction.version"].get("finalized", (0,))[0] == level)

    transaction_version(0, "SAFE_DOWNGRADE")
    try:
        prepared = fragile.prepare()
        for _ in range(2):
            for each in prepared:
                finish(each, True, broker.bootstrap_servers, timeout=10)
        with pytest.raises(FinishFailed, match="two processes decided differently"):
            finish(prepared[0], False, broker.bootstrap_servers, timeout=10)
        assert audited(fragile).valid
    finally:
        transaction_version(2)


@pytest.mark.long
def test_what_was_prepared_is_lost_when_its_timeout_passes_before_the_decision_is_carried_out(run):
    run = run(timeout_ms=1000)
    prepared = run.prepare()
    run.decisions.record(1, True, prepared)
    eventually(lambda: lingering(run.bootstrap_servers, run.prefix) == [])
    done = run.recover()
    assert done.lost.keys() == set(prepared)
    assert "Its timeout was 1 s" in str(done)
    assert audited(run).lost == len(run.expected)
    assert run.recover().lost.keys() == set(prepared)  # and it is not forgotten


@pytest.mark.long
def test_batch_marker_sink_replays_what_the_same_timeout_costs_two_phase_commit(
    spark, broker, topic, classroom_log, tmp_path
):
    name, points = topic(), FaultPoints()
    sink = ExactlyOnceKafkaSink(
        name,
        name,
        bootstrap_servers=broker.bootstrap_servers,
        points=points,
        transaction_timeout_ms=1000,
    )

    def attempt():
        records = ip_count.read_source(
            spark, broker.bootstrap_servers, classroom_log.topic, records_per_batch=4 * RECORDS_PER_BATCH
        )
        ip_count.start_query(ip_count.count_ips(records), sink, tmp_path / "checkpoint").awaitTermination()

    class OutageLongerThanTheTimeout:
        point, batch = "before_commit", 1

        def strike(self):
            eventually(lambda: lingering(broker.bootstrap_servers, name) == [])

    with points.armed(OutageLongerThanTheTimeout()), pytest.raises(StreamingQueryException):
        attempt()
    attempt()
    verdict = audit(classroom_log.expected, read_results(broker.bootstrap_servers, name))
    assert verdict.valid, verdict


@pytest.mark.parametrize("came", [b"", b"\0\0", b"\0\0\0\x08", b"\0\0\0\x08half"])
def test_answer_that_is_cut_off_is_a_lost_connection(came):
    with pytest.raises(ConnectionError):
        read_message(io.BytesIO(came))


@pytest.mark.long
def test_new_producer_of_the_same_id_aborts_what_was_prepared(run):
    run = run()
    [first, _] = run.prepare()
    PreparingProducer(first.transactional_id, bootstrap_servers=run.bootstrap_servers).close()
    with pytest.raises(FinishFailed, match="a newer producer has taken the id over"):
        finish(first, True, run.bootstrap_servers)
    run.recover()
    assert results_of(run) == []


@pytest.mark.long
def test_preparer_that_only_seemed_dead_is_fenced(run):
    run = run()
    with PreparingProducer(run.prefix, bootstrap_servers=run.bootstrap_servers) as zombie:
        zombie.send(run.topic, b"{}")
        finish(zombie.prepare(), False, run.bootstrap_servers)
        with pytest.raises(ProducerFencedError):
            zombie._producer.commit_transaction()
    assert results_of(run) == []


@pytest.mark.long
def test_finishing_twice_changes_nothing_and_differently_is_refused(run):
    run = run()
    [first, second] = run.prepare()
    for _ in range(2):
        finish(first, True, run.bootstrap_servers)
        finish(second, False, run.bootstrap_servers)
    with pytest.raises(FinishFailed, match="decided differently"):
        finish(first, False, run.bootstrap_servers)
    with pytest.raises(TransactionLost):
        finish(second, True, run.bootstrap_servers)
    assert len(results_of(run)) == len(run.expected) / PARTICIPANTS


@pytest.mark.long
def test_transaction_that_kafka_does_not_know_cannot_be_finished(broker):
    with pytest.raises(FinishFailed, match="knows no transaction of that id"):
        finish(PreparedTransaction(f"never-used-{uuid.uuid4().hex}", 1, 0), True, broker.bootstrap_servers)


@pytest.mark.long
def test_prepared_transaction_outlives_its_producer_and_an_unprepared_one_does_not(run):
    run = run()
    prepared = run.prepare()  # both producers are closed
    assert lingering(run.bootstrap_servers, run.prefix) == prepared
    with PreparingProducer(f"{run.prefix}-3", bootstrap_servers=run.bootstrap_servers) as producer:
        producer.send(run.topic, b"{}")
    eventually(lambda: lingering(run.bootstrap_servers, run.prefix) == prepared)
    run.recover()


@pytest.mark.long
def test_transaction_that_cannot_be_prepared_says_so(broker, topic):
    small = topic(max_message_bytes="500")

    def producer():
        return PreparingProducer(uuid.uuid4().hex, bootstrap_servers=broker.bootstrap_servers)

    with producer() as empty, pytest.raises(PrepareFailed, match="nothing was sent"):
        empty.prepare()
    with producer() as too_large:
        too_large.send(small, b"fits")
        too_large.send(small, b"x" * 5000)
        with pytest.raises(PrepareFailed, match="MessageSizeTooLarge"):
            too_large.prepare()
    with producer() as prepared:
        prepared.send(small, b"fits")
        finish(prepared.prepare(), False, broker.bootstrap_servers)
        with pytest.raises(RuntimeError, match="no record can be added"):
            prepared.send(small, b"one more")
    assert read_committed(broker.bootstrap_servers, small) == []
