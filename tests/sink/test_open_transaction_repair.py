"""What Kafka leaves open of a transaction that it calls complete is found, and ended as the transaction was.

Each partition has one replica. Its broker is dead when the transaction ends, and comes back.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable

import pyarrow
import pytest
from confluent_kafka import KafkaException
from confluent_kafka import Producer as LibrdkafkaProducer
from kafka.protocol.metadata import MetadataRequest
from pyspark.errors import StreamingQueryException

from exactly_once_kafka.__main__ import main
from exactly_once_kafka.deadline import Deadline
from exactly_once_kafka.errors import OutcomeUnknown
from exactly_once_kafka.executors.write_task import WriteTask
from exactly_once_kafka.kafka_client.cluster import Cluster
from exactly_once_kafka.kafka_client.open_transaction_repair import OpenTransactionRepair
from exactly_once_kafka.kafka_client.record_batch import ProducerId
from exactly_once_kafka.kafka_client.settings import Encoding
from exactly_once_kafka.kafka_client.transaction_coordinator import Coordinator
from exactly_once_kafka.points import AFTER_COMMIT, BEFORE_COMMIT, MID_ROWS
from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.equipment.broker import Broker
from labs.equipment.node import Node
from labs.equipment.topics import admin, create_topic
from labs.equipment.waiting import eventually
from labs.evidence.auditor.audit import audit
from labs.evidence.readers.results import read_committed, read_results
from tests.sink.test_executors_on_three_brokers import SETTINGS, leaders

PARTITIONS, ROWS = 3, 30
FATES = pytest.mark.parametrize("committed", [True, False], ids=["committed", "aborted"])
NOBODY = -1
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def kafka():
    with Broker(nodes=3, settings=SETTINGS) as cluster:
        yield cluster


class Leaderless:
    """A broker that is to be dead for a while. Some partitions of the topic, and others, have no leader then."""

    def __init__(self, kafka: Broker, topic: str, broker: int):
        self._kafka, self._topic, self._broker = kafka, topic, broker

    @classmethod
    def new(cls, kafka: Broker, topic: str, partitions: int = PARTITIONS, **settings: str) -> Leaderless:
        """Create a topic, whose partition 0 is to have no leader."""
        settings |= {"min_insync_replicas": "1"}
        create_topic(kafka.bootstrap_servers, topic, partitions, replication=1, **settings)
        return cls(kafka, topic, leaders(kafka.bootstrap_servers, topic)[0])

    def begin(self) -> None:
        self._kafka.kill(self._broker)
        eventually(lambda: self._all(in_sight=False), timeout=60)

    def end(self) -> None:
        self._kafka.start(self._broker)
        eventually(lambda: self._all(in_sight=True), timeout=60)

    def _in_sight_of(self, node: Node) -> bool:
        """Tell whether a broker that is alive knows a leader of each partition of the topic."""
        cluster, deadline = Cluster({"bootstrap_servers": f"127.0.0.1:{node.port}"}), Deadline(60)
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=self._topic)])
        [topic] = cluster.ask(request, node.node_id, deadline).topics
        cluster.close()
        return all(each.leader_id != NOBODY for each in topic.partitions)

    def _all(self, in_sight: bool) -> bool:
        alive = [node for node in self._kafka.nodes if node.pid]
        return all(self._in_sight_of(node) is in_sight for node in alive)


class Producer:
    """A transactional id, and a topic of its own to write to."""

    def __init__(self, kafka: Broker, anywhere: bool = False):
        self.servers, self.name = kafka.bootstrap_servers, f"open-{uuid.uuid4().hex[:8]}"
        self.leaderless = Leaderless.new(kafka, self.name)
        marker = create_topic(self.servers, f"{self.name}-marker", 1, cleanup_policy="compact")
        self.coordinator = Coordinator(self.name, {"bootstrap_servers": self.servers}, marker, 60_000)
        self.repair = OpenTransactionRepair(self.coordinator, None if anywhere else self.name)

    def fence(self, seconds: float = 60) -> ProducerId:
        return self.repair.fence(Deadline(seconds))

    def write(self, producer: ProducerId, what: str) -> list[tuple[str, int]]:
        """Write ROWS rows, and return the partitions that they are in."""
        coordinator, name = self.coordinator, self.name
        task = WriteTask(coordinator.connection, Encoding(), name, producer, name, [], 60, 0, 1, PARTITIONS)
        keys = [str(number).encode() for number in range(ROWS)]
        report = task.write_all(
            coordinator.cluster, iter([pyarrow.RecordBatch.from_pydict({"key": keys, "value": [what.encode()] * ROWS})])
        )
        assert report.rows == ROWS
        assert len(report.written) == PARTITIONS
        return [(topic, partition) for topic, partition, _ in report.written]

    def end(self, producer: ProducerId, committed: bool) -> ProducerId:
        return self.coordinator.end(producer, committed, Deadline(60))

    def leave_open(self, committed: bool) -> tuple[ProducerId, ProducerId]:
        """Have Kafka forget to end a transaction in a partition; return its epoch, and the one that its end gave."""
        producer = self.fence()
        self.write(producer, "first")
        self.leaderless.begin()
        following = self.end(producer, committed)
        self.leaderless.end()
        return producer, following

    def go_on(self, producer: ProducerId, committed: bool) -> None:
        self.write(producer, "second")
        self.end(producer, committed)

    def visible(self) -> dict[str, int]:
        """Return how many rows there are of each transaction, for who reads what is committed."""
        rows = [message.value() for message in read_committed(self.servers, self.name)]
        return {what: rows.count(what.encode()) for what in ("first", "second")}


@pytest.fixture
def producer(kafka):
    return Producer(kafka)


def expected(committed: bool) -> dict[str, int]:
    """What is to be seen if the first transaction ended so, and the second the other way."""
    return {"first": ROWS * committed, "second": ROWS * (not committed)}


@FATES
def test_kafka_leaves_rows_open_that_share_the_fate_of_what_comes_next(producer, committed):
    """As any client finds them. Once this fails, Kafka does what it promises, and who looks for them may go."""

    def begin(what: str) -> LibrdkafkaProducer:
        client = LibrdkafkaProducer({"bootstrap.servers": producer.servers, "transactional.id": producer.name})
        client.init_transactions(60)
        client.begin_transaction()
        for number in range(ROWS):
            client.produce(producer.name, what, partition=number % PARTITIONS)
        client.flush(60)
        return client

    def end(client: LibrdkafkaProducer, committed: bool) -> None:
        client.commit_transaction(60) if committed else client.abort_transaction(60)

    first = begin("first")
    producer.leaderless.begin()
    end(first, committed)
    producer.leaderless.end()
    end(begin("second"), not committed)
    wrong = (
        {"first": ROWS - ROWS // PARTITIONS, "second": 0}
        if committed
        else {"first": ROWS // PARTITIONS, "second": ROWS}
    )
    eventually(lambda: producer.visible() == wrong, timeout=20)


@FATES
def test_who_takes_over_ends_them_as_the_transaction_was(producer, committed):
    producer.leave_open(committed)
    producer.go_on(producer.fence(), not committed)
    eventually(lambda: producer.visible() == expected(committed), timeout=20)


@FATES
def test_who_goes_on_ends_them_as_the_transaction_was(producer, committed):
    first, following = producer.leave_open(committed)
    wrote = [(producer.name, partition) for partition in range(PARTITIONS)] if committed else None
    producer.go_on(producer.repair.finish_everywhere(first, committed, following, Deadline(60), wrote), not committed)
    eventually(lambda: producer.visible() == expected(committed), timeout=20)


@FATES
def test_what_is_open_in_any_topic_is_found_if_rows_name_theirs(kafka, committed):
    producer = Producer(kafka, anywhere=True)
    producer.leave_open(committed)
    producer.go_on(producer.fence(), not committed)
    eventually(lambda: producer.visible() == expected(committed), timeout=20)


def test_what_a_dead_driver_left_is_aborted_where_nobody_leads(producer):
    producer.write(producer.fence(), "first")
    producer.leaderless.begin()
    with pytest.raises(KafkaException, match="no leader for"):
        producer.fence(seconds=5)
    producer.leaderless.end()
    producer.go_on(producer.fence(), True)
    eventually(lambda: producer.visible() == expected(False), timeout=20)


@FATES
def test_settling_ends_them_and_takes_an_epoch_only_then(producer, committed):
    first = producer.fence()
    producer.repair.ensure_ended(Deadline(60))
    producer.write(first, "first")
    producer.repair.ensure_ended(Deadline(60))
    producer.leaderless.begin()
    following = producer.end(first, committed)
    producer.leaderless.end()
    producer.repair.ensure_ended(Deadline(60))
    eventually(lambda: producer.visible() == {**expected(committed), "second": 0}, timeout=20)
    with pytest.raises(KafkaException, match=r"EPOCH|FENCED"):
        producer.end(following, False)


@pytest.mark.parametrize("itself", [True, False])
def test_a_topic_that_was_deleted_since_is_not_waited_for(producer, itself):
    first = producer.fence()
    producer.write(first, "first")
    following = producer.end(first, True)
    gone = create_topic(producer.servers, f"{producer.name}-gone", 1)
    producer.coordinator.partitions(gone, Deadline(60))  # it is known by its leader
    with admin(producer.servers) as client:
        client.delete_topics([gone])
    wrote = [(producer.name, 0), (gone, 0)]
    assert producer.repair.finish_everywhere(first, True, following, Deadline(20), wrote, itself) == following


@FATES
def test_an_operator_who_sets_the_marker_has_them_ended_too(producer, committed):
    producer.leave_open(committed)
    adopt = ["adopt", producer.name, "--topic", producer.name, "--batch", "1", "--query-id", "a-query"]
    assert main([*adopt, "--bootstrap-servers", producer.servers]) == 0
    producer.go_on(producer.fence(), not committed)
    eventually(lambda: producer.visible() == expected(committed), timeout=20)


def test_nobody_guesses_how_they_were_to_end(producer):
    producer.leave_open(True)
    producer.coordinator.retry(lambda: producer.coordinator.fence_once(Deadline(60)), Deadline(60))
    with pytest.raises(OutcomeUnknown, match=producer.name):
        producer.fence()


def test_partition_that_nobody_leads_is_passed_over_if_rows_name_their_topics_unless_this_run_wrote_there(kafka):
    """It may be any partition of the cluster, of which somebody else takes care."""
    producer = Producer(kafka, anywhere=True)
    first = producer.fence()
    wrote = producer.write(first, "first")
    producer.leaderless.begin()
    following = producer.end(first, True)
    with pytest.raises(KafkaException, match="no leader for"):
        producer.repair.finish_everywhere(first, True, following, Deadline(5), wrote)
    producer.fence(seconds=30)
    producer.leaderless.end()
    assert producer.visible()["first"] < ROWS, "what is open in that partition was not ended"


def test_what_was_noted_is_ended_though_its_partition_is_out_of_sight_when_kafka_has_forgotten_how(kafka):
    """The first request for an epoch found it, and its answer was lost. Rows that name their topics may be anywhere."""
    producer = Producer(kafka, anywhere=True)
    producer.leave_open(True)
    deadline, repair = Deadline(120), producer.repair
    producer.coordinator.retry(lambda: repair._fence(deadline), deadline)
    producer.leaderless.begin()
    following = producer.coordinator.retry(lambda: repair._fence(deadline), deadline)
    producer.leaderless.end()
    assert repair._found
    producer.go_on(repair._end(*repair._found, following, deadline), False)
    eventually(lambda: producer.visible() == expected(True), timeout=20)


def test_committed_rows_are_lost_if_the_driver_dies_between_their_enrolment_and_their_end(producer):
    producer.leave_open(True)
    deadline, repair = Deadline(60), producer.repair
    following = producer.coordinator.retry(lambda: repair._fence(deadline), deadline)
    assert repair._found
    _, found = repair._found
    producer.coordinator.retry(lambda: repair._enrol(found, following, deadline), deadline)
    repair._found = None  # as the next driver knows nothing of it
    producer.go_on(producer.fence(), True)
    eventually(lambda: producer.visible()["second"] == ROWS, timeout=20)
    assert producer.visible()["first"] < ROWS


class Query:
    """A query into every partition of a topic. `strikes` says what happens at which point of which batch, once.

    The broker that dies has its marker, too.
    """

    def __init__(self, spark, kafka, directory, **options):
        self._spark, self.servers, self._directory = spark, kafka.bootstrap_servers, directory
        self.name, self._options = f"open-{uuid.uuid4().hex[:8]}", options
        Leaderless.new(kafka, self.name)
        self.leaderless = Leaderless.new(kafka, f"{self.name}-marker", 1, cleanup_policy="compact")
        self.strikes: dict[tuple[str, int], Callable[[], object]] = {}
        (directory / "source").mkdir()

    def run(self, batches: int) -> None:
        """Run until so many batches are done."""
        for batch in range(batches):
            (self._directory / "source" / str(batch)).write_text("a batch\n")
        sink = ExactlyOnceKafkaSink(
            self.name, self.name, bootstrap_servers=self.servers, points=self._pass, **self._options
        )
        stream = self._spark.readStream.option("maxFilesPerTrigger", 1).text(str(self._directory / "source"))
        writer = stream.writeStream.option("checkpointLocation", str(self._directory / "checkpoint"))
        writer = writer.trigger(availableNow=True).foreachBatch(lambda _, batch: sink(self._rows(batch), batch))
        writer.start().awaitTermination()

    def audit(self):
        expected = {(batch, str(number)): 1 for batch in range(3) for number in range(ROWS)}
        return audit(expected, read_results(self.servers, self.name))

    def _pass(self, point: str, batch: int) -> None:
        self.strikes.pop((point, batch), lambda: None)()

    def _rows(self, batch: int):
        row = f"""concat('{{"window_start": {batch}, "ip": "', id, '", "count": 1}}')"""
        rows = self._spark.range(0, ROWS, 1, PARTITIONS)
        return rows.selectExpr(f"{row} AS value", f"cast(id % {PARTITIONS} AS int) AS partition")


def fail() -> None:
    raise TimeoutError("as if Kafka had been silent")


@pytest.fixture(params=["driver", "executors", "executors, few rows by the driver"])
def query(request, spark, kafka, tmp_path):
    writers, _, few = request.param.partition(", ")
    return Query(spark, kafka, tmp_path, writers=writers, **({} if few else {"driver_rows": 0}))


def test_rows_that_are_committed_where_nobody_leads_are_not_lost_with_the_next_batch(query):
    query.strikes[BEFORE_COMMIT, 1] = query.leaderless.begin
    query.strikes[AFTER_COMMIT, 1] = query.leaderless.end
    query.strikes[MID_ROWS, 2] = fail
    with pytest.raises(StreamingQueryException, match="the batch is repeated"):
        query.run(3)
    query.run(3)
    assert query.audit().valid, query.audit()


@pytest.mark.parametrize("again", [False, True], ids=["the next batch follows", "the batch is repeated"])
def test_a_marker_that_is_committed_where_nobody_leads_is_found(query, again):
    def end() -> None:
        query.leaderless.end()
        if again:
            fail()

    query.strikes[BEFORE_COMMIT, 1] = query.leaderless.begin
    query.strikes[AFTER_COMMIT, 1] = end
    with pytest.raises(StreamingQueryException) if again else contextlib.nullcontext():
        query.run(2)
    query.run(3)
    assert query.audit().valid, query.audit()


def test_query_is_refused_if_nobody_knows_any_more_how_they_were_to_end(query):
    def end() -> None:
        query.leaderless.end()
        fail()

    query.strikes[BEFORE_COMMIT, 1] = query.leaderless.begin
    query.strikes[AFTER_COMMIT, 1] = end
    with pytest.raises(StreamingQueryException):
        query.run(2)
    coordinator = Coordinator(query.name, {"bootstrap_servers": query.servers}, f"{query.name}-marker", 60_000)
    coordinator.retry(lambda: coordinator.fence_once(Deadline(60)), Deadline(60))
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="SinkRefused"):
            query.run(3)


def test_rows_that_are_aborted_where_nobody_leads_do_not_come_with_the_next_batch(query):
    def fail_leaderless() -> None:
        query.leaderless.begin()
        fail()

    query.strikes[BEFORE_COMMIT, 1] = fail_leaderless
    with pytest.raises(StreamingQueryException, match="the batch is repeated"):
        query.run(3)
    query.leaderless.end()
    query.run(3)
    assert query.audit().valid, query.audit()
