"""Three brokers, of which two must have each record: some die, and leaders move, while the executors write a batch.

The executors are threads of this process, whose rows come slowly; or processes of their own, whose rows are held at the
proxy of the broker that leads.
"""

from __future__ import annotations

import contextlib
import uuid

import pytest
from kafka import TopicPartition
from pyspark.errors import StreamingQueryException

from exactly_once_kafka.executors.transport import ExecutorsTransport
from exactly_once_kafka.points import BEFORE_COMMIT
from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.equipment.topics import admin, create_topic
from labs.equipment.waiting import eventually
from labs.faults.fault_points import FaultPoints
from labs.faults.proxy import proxied_broker
from tests.sink import test_executors_on_a_cluster as of_processes
from tests.sink.cluster_driver import EXECUTORS, ClusterDriver
from tests.sink.halfway import Halfway
from tests.sink.test_three_brokers import in_sync

NODES = PARTITIONS = TASKS = 3
SETTINGS = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}  # a dead one is noticed soon
PREFERRED = 0  # election: of the first replica of each partition
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def kafka():
    with proxied_broker(nodes=NODES, settings=SETTINGS) as cluster_and_proxy:
        yield cluster_and_proxy


@pytest.fixture(scope="module")
def driver():
    with contextlib.closing(ClusterDriver()) as driver:
        yield driver


def leaders(servers, topic) -> dict[int, int]:
    """Return the leader of each partition."""
    with admin(servers) as client:
        [topic] = client.describe_topics([topic])
    return {each["partition_index"]: each["leader_id"] for each in topic["partitions"]}


def move(servers, topic, to: dict[int, int]) -> None:
    """Make others the leaders of partitions."""
    with admin(servers) as client:
        wanted = {
            TopicPartition(topic, partition): [leader, *({*range(NODES)} - {leader})]
            for partition, leader in to.items()
        }
        assert not any(client.alter_partition_reassignments(wanted).values())

        def moved() -> bool:
            client.elect_leaders(PREFERRED, {topic: [*to]}, raise_errors=False)
            return leaders(servers, topic) == to

        eventually(moved, timeout=60)


class Trial:
    """A batch that is halfway, to be struck, and then to be carried through: by a new query if this one fails."""

    def __init__(self, spark, cluster, directory):
        self.cluster, self.servers, self.points = cluster, cluster.bootstrap_servers, FaultPoints()
        self.topic = create_topic(self.servers, f"three-{uuid.uuid4().hex[:8]}", PARTITIONS)
        self._halfway = Halfway(spark, self.servers, self.topic, directory, TASKS)

    def begin(self) -> None:
        options = {"bootstrap_servers": self.servers, "writers": "executors", "driver_rows": 0, "points": self.points}
        self.sink = ExactlyOnceKafkaSink(self.topic, self.topic, **options)
        self._query = self._halfway.start(self.sink)

    def stop_halfway(self) -> None:
        self.begin()
        self._halfway.wait(self._query)

    def carry_through(self) -> None:
        self._halfway.go()
        while self._failed():
            assert "batch 1" in str(self._query.exception())
            self.begin()

    def _failed(self) -> bool:
        with contextlib.suppress(StreamingQueryException):
            self._query.awaitTermination()
        return self._query.exception() is not None

    def coordinator(self) -> int:
        """Return the broker that ends the sink's transactions."""
        transport = self.sink.transport
        assert isinstance(transport, ExecutorsTransport)
        coordinator = transport.coordinator
        assert coordinator.node
        return int(coordinator.node.rpartition("-")[2])

    def audit(self):
        return self._halfway.audit()


class TrialOfProcesses(of_processes.Trial):
    """The same, of executors that are processes: the first broker leads, behind a proxy."""

    def __init__(self, kafka, driver, directory):
        super().__init__(kafka, driver, directory, partitions=EXECUTORS, batches=2)
        self.cluster = kafka[0]
        move(self.servers, self.topic, dict.fromkeys(range(EXECUTORS), 0))

    def stop_halfway(self) -> None:
        self._middle = self.begin_and_stop_in_the_middle()

    def carry_through(self) -> None:
        for request in self._middle:
            with contextlib.suppress(OSError):  # to a dead broker
                request.deliver()
        while failed := self.end():
            assert "the batch is repeated" in failed, failed
            self.begin()


@pytest.fixture
def whole(kafka):
    """The cluster, whose brokers all run again when the test is over."""
    cluster = kafka[0]
    yield cluster
    cluster.start()
    eventually(lambda: in_sync(cluster.bootstrap_servers), timeout=120)


@pytest.fixture
def threads(spark, whole, tmp_path):
    return Trial(spark, whole, tmp_path)


@pytest.fixture
def processes(kafka, whole, driver, tmp_path):
    return TrialOfProcesses(kafka, driver, tmp_path)


@pytest.fixture(params=["threads", "processes"])
def trial(request, whole):
    return request.getfixturevalue(request.param)


def test_leader_killed_in_the_middle_of_a_batch(trial):
    trial.stop_halfway()
    trial.cluster.kill(leaders(trial.servers, trial.topic)[0])
    trial.carry_through()
    assert not trial.cluster.running
    assert trial.audit().valid, trial.audit()


@pytest.mark.soak
def test_two_killed_in_the_middle_of_a_batch_and_back(trial):
    trial.stop_halfway()
    trial.cluster.kill(0)
    trial.cluster.kill(1)
    trial.cluster.start()
    trial.carry_through()
    assert trial.audit().valid, trial.audit()


def test_leaders_that_move_in_the_middle_of_a_batch(trial):
    trial.stop_halfway()
    before = leaders(trial.servers, trial.topic)
    move(trial.servers, trial.topic, {partition: (leader + 1) % NODES for partition, leader in before.items()})
    trial.carry_through()
    assert trial.audit().valid, trial.audit()


class KillCoordinator:
    point, batch = BEFORE_COMMIT, 1

    def __init__(self, trial):
        self._trial = trial

    def strike(self):
        self._trial.cluster.kill(self._trial.coordinator())


def test_coordinator_killed_between_the_last_row_and_the_commit(threads):
    with threads.points.armed(KillCoordinator(threads)) as struck:
        threads.begin()
        threads.carry_through()
    assert struck
    assert not threads.cluster.running
    assert threads.audit().valid, threads.audit()
