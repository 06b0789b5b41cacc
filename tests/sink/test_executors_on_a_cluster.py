"""The executors of a cluster write, and are killed while they do: nothing is lost or doubled, and zombies are refused.

What a task has sent is held at the proxy, so that each fault strikes at a known place: the first record of each task is
in Kafka, the second is under way.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import psutil
import pytest

from exactly_once_kafka.executors.transport import KEEPS_CORE
from exactly_once_kafka.points import AFTER_COMMIT, BEFORE_CHECKPOINT, BEFORE_ROWS, FAULT_POINTS
from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.equipment.topics import create_topic
from labs.equipment.waiting import eventually
from labs.evidence.auditor.audit import audit
from labs.evidence.readers.results import read_results, read_visible
from labs.evidence.readers.transactions import settle, wait_until_ended
from labs.faults.proxy import Proxy, Request, proxied_broker
from tests.sink.cluster_driver import ROWS, ClusterDriver, Order, expected
from tests.sink.mutants import (
    EpochNotAdvanced,
    NotCounted,
    NotHandedOut,
    SilenceNotAborted,
    StagesNotTold,
    StagesRunAgain,
    TasksRunAgain,
)

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
AGAIN = "ran a task of the batch again"
FENCED = {"InvalidProducerEpochError"}


@pytest.fixture(scope="module")
def kafka():
    with proxied_broker() as broker_and_proxy:
        yield broker_and_proxy


@pytest.fixture(scope="module")
def driver():
    with closing(ClusterDriver()) as driver:
        yield driver


class Trial:
    """A query of a few batches into a topic of its own, each partition of which is written by one executor."""

    def __init__(self, kafka, driver, directory: Path, partitions: int, batches: int):
        self._broker, self._proxy = kafka
        self._driver, self._directory, self._batches = driver, directory, batches
        self._runs = 0
        self.servers, self.partitions, self.topic = self._broker.bootstrap_servers, partitions, directory.name
        create_topic(self.servers, self.topic, partitions)

    def begin(self, sink=ExactlyOnceKafkaSink, die_at=None, others=None, slow="") -> None:
        self._runs += 1
        self.notes = self._directory / f"run-{self._runs}"
        self.notes.mkdir()
        where = self.servers, self.topic, self.partitions, self._batches, self._directory, self.notes
        keeps_core = KEEPS_CORE if others else 240  # what a test holds back takes long on a busy machine
        self._driver.begin(Order(sink, *where, die_at, others, keeps_core, slow))

    def hold(self):
        """Hold the next records of each task."""
        held = {"cut_client": False, "transactional_id": self.topic}
        return [self._proxy.hold_next_request(Request.PRODUCE, **held) for _ in range(self.partitions)]

    def begin_and_stop_in_the_middle(self, sink=ExactlyOnceKafkaSink, others=None):
        """Return what is held when the first record of each task is in Kafka."""
        first = self.hold()
        self.begin(sink, others=others)
        for held in first:
            held.wait(240)
        second = self.hold()
        for held in first:
            assert held.deliver().error is None
        for held in second:
            held.wait(120)
        return second

    def kill_an_executor(self) -> None:
        """Kill one that has computed rows and is writing rows."""
        note = next(self.notes.iterdir())
        psutil.Process(int(note.name.rpartition(".")[2])).kill()

    def tasks_begun(self) -> int:
        """Return how often rows were computed since `begin`."""
        return len(list(self.notes.iterdir()))

    def end(self) -> str:
        return self._driver.end()

    def audit(self):
        return audit(expected(self._batches), read_results(self.servers, self.topic))


@pytest.fixture
def trial(kafka, driver, tmp_path):
    """Make a trial: `trial(partitions=1, batches=1)`."""
    return lambda partitions=1, batches=1: Trial(kafka, driver, tmp_path, partitions, batches)


def answers(late) -> set[str | None]:
    """Deliver a copy of each request that the network kept too long, and return what Kafka says of them."""
    return {request.repeat().error for request in late}


@pytest.mark.parametrize("partitions", [1, 2], ids=["task", "stage"])
@pytest.mark.soak
def test_executor_killed_while_it_writes_fails_the_batch_which_is_repeated(trial, partitions):
    """Of one partition the task is run again, of two the stage: the dead executor had rows that the other wants."""
    trial = trial(partitions)
    late = trial.begin_and_stop_in_the_middle()
    trial.kill_an_executor()
    assert AGAIN in trial.end()
    wait_until_ended(trial.servers, trial.topic)  # the driver waits for its abort five seconds only
    assert answers(late) == FENCED, "the batch is aborted"
    assert read_visible(trial.servers, trial.topic) == []
    for request in late:
        request.deliver()  # to a task that still waits, if its executor lives
    middle = trial.begin_and_stop_in_the_middle()
    assert answers(late) == FENCED, "the batch is being repeated"
    for request in middle:
        request.deliver()
    assert trial.end() == ""
    assert answers([*late, *middle]) == FENCED, "the batch is committed"
    assert trial.audit().valid, trial.audit()


@pytest.mark.parametrize("lose", [Proxy.drop_next_response, Proxy.drop_next_request], ids=["acknowledgement", "rows"])
def test_executor_sends_again_what_the_network_lost(trial, kafka, lose):
    """It is lost in mid-batch, with more of the same partition behind it."""
    trial = trial(partitions=2)
    middle = trial.begin_and_stop_in_the_middle()
    lost = lose(kafka[1], Request.PRODUCE, transactional_id=trial.topic)
    for request in middle:
        request.deliver()
    assert trial.end() == ""
    assert lost.struck.is_set()
    assert trial.tasks_begun() == 2
    assert trial.audit().valid, trial.audit()


@pytest.mark.soak
def test_rows_of_an_executor_that_arrive_twice_are_there_once(trial, kafka):
    trial = trial(partitions=2)
    twice = kafka[1].hold_next_request(Request.PRODUCE, transactional_id=trial.topic)  # and the executor sends it again
    middle = trial.begin_and_stop_in_the_middle()
    assert twice.repeat().error is None, "known by its sequence number"
    for request in middle:
        request.deliver()
    assert trial.end() == ""
    assert trial.tasks_begun() == 2
    assert answers([twice]) == FENCED, "the batch is committed"
    assert trial.audit().valid, trial.audit()


@pytest.mark.parametrize("point", FAULT_POINTS)
def test_driver_killed_at_any_point_of_a_batch_neither_loses_nor_doubles(trial, point):
    trial = trial(partitions=2)
    trial.begin(die_at=point)
    assert trial.end() == "killed"
    written, committed = point != BEFORE_ROWS, point in (AFTER_COMMIT, BEFORE_CHECKPOINT)
    settle(trial.servers, trial.topic)
    assert len(read_visible(trial.servers, trial.topic, "read_uncommitted")) == (ROWS if written else 0)
    assert len(read_visible(trial.servers, trial.topic)) == (ROWS if committed else 0)
    trial.begin()
    assert trial.end() == ""
    assert trial.audit().valid, trial.audit()


@pytest.mark.soak
def test_driver_notices_by_itself_that_a_stage_ran_again(trial):
    trial = trial(partitions=2)
    late = trial.begin_and_stop_in_the_middle(StagesNotTold)
    trial.kill_an_executor()
    assert AGAIN in trial.end()
    for request in late:
        request.deliver()
    assert read_visible(trial.servers, trial.topic) == []


def silence(trial, broker, file: Path, sink=ExactlyOnceKafkaSink):
    """Freeze Kafka in mid-batch until other jobs go on, since the tasks have given up; return what is held."""
    late = trial.begin_and_stop_in_the_middle(sink, others=file)
    broker.pause()
    try:
        before = file.stat().st_size if file.exists() else 0
        eventually(lambda: file.stat().st_size > before + 5, timeout=60)
    finally:
        broker.resume()
    return late


@pytest.mark.soak
def test_other_jobs_go_on_while_kafka_is_frozen_in_the_middle_of_a_batch(trial, kafka, tmp_path):
    trial = trial(partitions=2)
    late = silence(trial, kafka[0], tmp_path / "others")
    assert trial.end() == ""
    assert answers(late) == FENCED
    assert trial.audit().valid, trial.audit()


@pytest.mark.parametrize(("sink", "partitions"), [(NotCounted, 1), (TasksRunAgain, 1), (StagesRunAgain, 2)])
def test_mutant_that_takes_what_a_repeated_task_has_done_loses_rows(trial, sink, partitions):
    trial = trial(partitions)
    late = trial.begin_and_stop_in_the_middle(sink)
    trial.kill_an_executor()
    assert trial.end() == ""
    for request in late:
        request.deliver()
    assert trial.audit().lost, trial.audit()


@pytest.mark.soak
def test_mutant_that_writes_again_what_kafka_was_silent_for_and_has_not_aborted_loses_rows(trial, kafka, tmp_path):
    trial = trial(partitions=2)
    silence(trial, kafka[0], tmp_path / "others", SilenceNotAborted)
    assert trial.end() == ""
    assert trial.audit().lost, trial.audit()


@pytest.mark.soak
def test_mutant_that_does_not_hand_out_rows_by_partition_is_found_out(trial):
    trial = trial(partitions=2)
    trial.begin(NotHandedOut)
    assert f"sink {trial.topic!r}, batch 0: two tasks wrote to one Kafka partition" in trial.end()
    assert trial.audit().lost == ROWS


def test_mutant_whose_epoch_does_not_advance_is_refused_by_kafka(trial):
    trial = trial(batches=2)
    trial.begin(EpochNotAdvanced)
    assert "fenced" in trial.end()
    assert trial.audit().lost == ROWS
    trial.begin()
    assert trial.end() == ""
    assert trial.audit().valid, trial.audit()
