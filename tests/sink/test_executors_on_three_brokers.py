"""Three brokers, of which two must have each record: some die, and leaders move, while the executors write a batch."""

from __future__ import annotations

import contextlib
import uuid

import pytest
from kafka import TopicPartition
from pyspark.errors import StreamingQueryException

from exactly_once_kafka.points import BEFORE_COMMIT
from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.equipment.broker import Broker
from labs.equipment.eventually import eventually
from labs.equipment.topics import admin, create_topic
from labs.faults.fault import FaultPoints
from tests.sink.halfway import Halfway
from tests.sink.test_three_brokers import in_sync

NODES = PARTITIONS = TASKS = 3
SETTINGS = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}  # a dead one is noticed soon
PREFERRED = 0  # election: of the first replica of each partition
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def cluster():
    with Broker(nodes=NODES, settings=SETTINGS) as cluster:
        yield cluster


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

    def leaders(self) -> dict[int, int]:
        with admin(self.servers) as client:
            [topic] = client.describe_topics([self.topic])
        return {each["partition_index"]: each["leader_id"] for each in topic["partitions"]}

    def coordinator(self) -> int:
        """Return the broker that ends the sink's transactions."""
        return int(self.sink._coordinator.node.rpartition("-")[2])

    def audit(self):
        return self._halfway.audit()


@pytest.fixture
def trial(spark, cluster, tmp_path):
    yield Trial(spark, cluster, tmp_path)
    cluster.start()
    eventually(lambda: in_sync(cluster.bootstrap_servers), timeout=120)


def test_leader_killed_in_the_middle_of_a_batch(trial):
    trial.stop_halfway()
    trial.cluster.kill(trial.leaders()[0])
    trial.carry_through()
    assert not trial.cluster.running
    assert trial.audit().valid, trial.audit()


def test_two_killed_in_the_middle_of_a_batch_and_back(trial):
    trial.stop_halfway()
    trial.cluster.kill(0)
    trial.cluster.kill(1)
    trial.cluster.start()
    trial.carry_through()
    assert trial.audit().valid, trial.audit()


def test_leaders_that_move_in_the_middle_of_a_batch(trial):
    trial.stop_halfway()
    before = trial.leaders()
    moved = {partition: (leader + 1) % NODES for partition, leader in before.items()}
    with admin(trial.servers) as client:
        wanted = {
            TopicPartition(trial.topic, partition): [leader, *({*range(NODES)} - {leader})]
            for partition, leader in moved.items()
        }
        assert not any(client.alter_partition_reassignments(wanted).values())
        client.elect_leaders(PREFERRED, {trial.topic: [*moved]}, raise_errors=False)
    eventually(lambda: trial.leaders() == moved, timeout=30)
    trial.carry_through()
    assert trial.audit().valid, trial.audit()


class KillCoordinator:
    point, batch = BEFORE_COMMIT, 1

    def __init__(self, trial):
        self._trial = trial

    def strike(self):
        self._trial.cluster.kill(self._trial.coordinator())


def test_coordinator_killed_between_the_last_row_and_the_commit(trial):
    with trial.points.armed(KillCoordinator(trial)) as struck:
        trial.begin()
        trial.carry_through()
    assert struck
    assert not trial.cluster.running
    assert trial.audit().valid, trial.audit()
