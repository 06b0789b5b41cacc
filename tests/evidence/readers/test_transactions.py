"""The transaction reader, the log as Kafka's tool dumps it, the tables of both, and their plot."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from kafka import KafkaProducer
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from pandas import DataFrame

from labs.equipment.broker import BrokerError, ExternalBroker
from labs.equipment.topics import KafkaUnreachable, create_topic
from labs.equipment.waiting import eventually
from labs.evidence.plots.transaction_plot import plot_transactions
from labs.evidence.readers.kafka_tools import (
    LogEntry,
    dump_log,
    dump_transaction_log,
    read_log,
    read_transaction_log,
)
from labs.evidence.readers.results import read_to_end
from labs.evidence.readers.transactions import (
    NoSuchPartition,
    PartitionEnd,
    Transaction,
    end_table,
    last_stable_offset,
    read_ends,
    read_transactions,
    transaction_table,
    wait_until_ended,
)
from tests.plots import bars, legend, points

# What every transaction test below finds in partition 0 of its topic, offset by offset.
STATUSES = [
    "committed",
    "committed",
    "commit marker",
    "aborted",
    "abort marker",
    "open",
    "no transaction",
    "no transaction",
    "committed",
    "commit marker",
]


@dataclass
class Scene:
    """A topic of two partitions, of which the second is empty, and the producers that wrote to the first.

    `worker` committed two records in one batch, aborted one, and has its third transaction open. Behind that lie
    a record of `bystander`, one of a producer without idempotence, and a committed one of `other`.
    """

    topic: str
    worker: str
    other: str
    producers: list[KafkaProducer]

    def described(self, servers: str) -> dict[str, Transaction]:
        return {each.transactional_id: each for each in read_transactions(servers)}


@pytest.fixture(scope="module")
def scene(broker) -> Iterator[Scene]:
    servers, name = broker.bootstrap_servers, uuid.uuid4().hex
    topic = create_topic(servers, f"scene-{name}", partitions=2)
    worker = transactional(servers, f"worker-{name}", linger_ms=200)
    bystander = KafkaProducer(bootstrap_servers=servers)
    plain = KafkaProducer(bootstrap_servers=servers, enable_idempotence=False)
    other = transactional(servers, f"other-{name}")

    worker.begin_transaction()
    worker.send(topic, b"1", b"key", partition=0, headers=[("header", b"]")])
    worker.send(topic, b"2", partition=0)
    worker.commit_transaction()
    worker.begin_transaction()
    worker.send(topic, b"3", partition=0).get(30)
    worker.abort_transaction()
    worker.begin_transaction()
    worker.send(topic, "größer\n| offset: 99".encode(), partition=0).get(30)
    bystander.send(topic, key=b"tombstone", partition=0).get(30)
    plain.send(topic, b"\xff\x0b\x1c", partition=0).get(30)
    other.begin_transaction()
    other.send(topic, b"5", partition=0).get(30)
    other.commit_transaction()
    producers = [worker, bystander, plain, other]
    made = Scene(topic, f"worker-{name}", f"other-{name}", producers)
    eventually(lambda: not made.described(servers)[made.other].open)
    yield made
    for producer in producers:
        producer.close()


def transactional(servers: str, transactional_id: str, **options: object) -> KafkaProducer:
    producer = KafkaProducer(bootstrap_servers=servers, transactional_id=transactional_id, **options)
    producer.init_transactions()
    return producer


@pytest.fixture(scope="module")
def log(broker, scene) -> list[LogEntry]:
    return read_log(broker, scene.topic)


# Transactions


@pytest.mark.bench
def test_open_and_finished_transactions_are_told_apart(broker, scene):
    described = scene.described(broker.bootstrap_servers)
    worker, other = described[scene.worker], described[scene.other]
    assert (worker.open, worker.state, worker.partitions) == (True, "Ongoing", ((scene.topic, 0),))
    assert (other.open, other.state, other.partitions) == (False, "CompleteCommit", ())


@pytest.mark.bench
def test_id_that_never_began_is_empty(broker):
    name = f"idle-{uuid.uuid4().hex}"
    transactional(broker.bootstrap_servers, name).close()
    [idle] = [each for each in read_transactions(broker.bootstrap_servers) if each.transactional_id == name]
    assert (idle.open, idle.state, idle.epoch) == (False, "Empty", 0)


@pytest.mark.bench
def test_successor_has_the_same_producer_id_and_a_newer_epoch(broker):
    servers, name = broker.bootstrap_servers, f"successor-{uuid.uuid4().hex}"

    def state() -> Transaction:
        return {each.transactional_id: each for each in read_transactions(servers)}[name]

    transactional(servers, name).close()
    first = state()
    transactional(servers, name).close()
    assert (state().producer_id, state().epoch) == (first.producer_id, first.epoch + 1)


@pytest.mark.bench
def test_transaction_table_has_a_row_per_transactional_id(broker, scene):
    table = transaction_table(broker.bootstrap_servers)
    assert table.loc[scene.worker, ["state", "partitions"]].to_list() == ["Ongoing", f"{scene.topic}-0"]
    assert table.loc[scene.other, ["state", "partitions"]].to_list() == ["CompleteCommit", "-"]


# Ends


@pytest.mark.bench
def test_open_transaction_holds_the_last_stable_offset(broker, scene):
    first, second = read_ends(broker.bootstrap_servers, scene.topic)
    assert first == PartitionEnd(partition=0, last_stable_offset=5, log_end=10)
    assert (first.hidden, second) == (5, PartitionEnd(1, 0, 0))
    assert last_stable_offset(broker.bootstrap_servers, scene.topic) == 5
    assert last_stable_offset(broker.bootstrap_servers, scene.topic, 1) == 0
    assert end_table(broker.bootstrap_servers, scene.topic).to_numpy().tolist() == [[5, 10, 5], [0, 0, 0]]


@pytest.mark.bench
def test_what_read_committed_sees_is_what_the_log_calls_decided_before_the_last_stable_offset(broker, scene, log):
    lso = last_stable_offset(broker.bootstrap_servers, scene.topic)
    decided = [entry.offset for entry in log if entry.offset < lso and entry.status in ("committed", "no transaction")]
    seen = list(read_to_end(broker.bootstrap_servers, scene.topic, "read_committed"))
    assert [message.offset() for message in seen] == decided == [0, 1]
    everything = list(read_to_end(broker.bootstrap_servers, scene.topic, "read_uncommitted"))
    assert [message.offset() for message in everything] == [entry.offset for entry in log if not entry.is_control]


@pytest.mark.bench
@pytest.mark.parametrize("read", [read_ends, last_stable_offset])
def test_unknown_topic_is_named_at_once(broker, read):
    with pytest.raises(NoSuchPartition, match="this Kafka has no topic 'nowhere'"):
        read(broker.bootstrap_servers, "nowhere")


@pytest.mark.bench
def test_unknown_partition_is_named(broker, scene):
    with pytest.raises(NoSuchPartition, match="has no partition 2"):
        last_stable_offset(broker.bootstrap_servers, scene.topic, 2)


# The log


@pytest.mark.bench
def test_log_says_what_became_of_each_record(log):
    assert [entry.offset for entry in log] == list(range(10))
    assert [entry.status for entry in log] == STATUSES
    assert [entry.is_control for entry in log] == ["marker" in status for status in STATUSES]


@pytest.mark.bench
def test_log_shows_batches_sequence_numbers_and_who_wrote(log):
    worker, bystander, other = log[0].producer_id, log[6].producer_id, log[8].producer_id
    assert [entry.batch for entry in log] == [0, 0, 2, 3, 4, 5, 6, 7, 8, 9]
    assert [entry.sequence for entry in log] == [0, 1, -1, 2, -1, 3, 0, -1, 0, -1]
    assert [entry.producer_id for entry in log] == [worker] * 6 + [bystander, -1, other, other]
    assert [entry.epoch for entry in log] == [0] * 7 + [-1] + [0] * 2
    assert len({worker, bystander, other}) == 3


@pytest.mark.bench
def test_log_shows_keys_and_values_up_to_a_line_break(log):
    assert [entry.key for entry in log] == ["key"] + [None] * 5 + ["tombstone"] + [None] * 3
    assert [entry.value for entry in log[:7]] == ["1", "2", None, "3", None, "größer", None]
    assert log[7].value == "�\x0b\x1c"


@pytest.mark.bench
def test_dump_is_the_log_as_a_table(broker, scene, log):
    table = dump_log(broker, scene.topic)
    assert table.index.to_list() == [entry.offset for entry in log]
    assert table["status"].to_list() == STATUSES
    assert table["value"].to_list()[:3] == ["1", "2", ""]
    assert table["producer id"].to_list() == [entry.producer_id for entry in log]
    assert dump_log(broker, scene.topic, 1).empty


@pytest.mark.bench
def test_all_segments_are_read(broker, topic):
    name = topic(segment_bytes="1048576")  # the smallest that Kafka allows
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    for _ in range(3):
        producer.send(name, 600_000 * b"x").get(30)
    producer.close()
    directory = broker.nodes[0].directory / "data" / f"{name}-0"
    assert len(list(directory.glob("*.log"))) == 3
    assert [entry.sequence for entry in read_log(broker, name)] == [0, 1, 2]


@pytest.mark.bench
def test_record_of_an_older_epoch_is_aborted_by_the_marker_that_fenced_it(broker, topic):
    servers, name = broker.bootstrap_servers, topic()
    zombie = transactional(servers, f"zombie-{name}")
    zombie.begin_transaction()
    zombie.send(name, b"half").get(30)
    successor = transactional(servers, f"zombie-{name}")
    successor.begin_transaction()
    successor.send(name, b"whole").get(30)
    successor.commit_transaction()
    eventually(lambda: read_ends(servers, name)[0].hidden == 0)
    log = read_log(broker, name)
    assert [(entry.epoch, entry.status) for entry in log] == [
        (0, "aborted"),
        (1, "abort marker"),
        (2, "committed"),
        (2, "commit marker"),
    ]
    assert len({entry.producer_id for entry in log}) == 1


@pytest.mark.bench
def test_transaction_log_has_the_decisions_and_the_epoch_that_ends_what_a_predecessor_left_open(broker):
    servers, name = broker.bootstrap_servers, uuid.uuid4().hex
    create_topic(servers, name, partitions=1)
    first = transactional(servers, f"noted-{name}")
    first.begin_transaction()
    first.send(name, b"half").get(30)
    second = transactional(servers, f"noted-{name}")
    second.begin_transaction()
    second.send(name, b"whole").get(30)
    second.commit_transaction()
    assert wait_until_ended(servers, f"noted-{name}").state == "CompleteCommit"
    notes = read_transaction_log(broker, f"noted-{name}")
    assert [(each.epoch, each.state) for each in notes] == [
        (0, "Empty"),
        (0, "Ongoing"),
        (1, "PrepareAbort"),
        (1, "CompleteAbort"),
        (2, "Empty"),
        (2, "Ongoing"),
        (2, "PrepareCommit"),
        (2, "CompleteCommit"),
    ]
    assert notes[1].partitions == (f"{name}-0",)
    table = dump_transaction_log(broker, f"noted-{name}")
    assert table["state"].to_list() == [each.state for each in notes]
    assert table.index.to_list() == list(range(1, 9))
    assert dump_transaction_log(broker, "nobody").empty
    for producer in (first, second):
        producer.close()


def test_transaction_log_of_somebody_elses_kafka_is_refused():
    with pytest.raises(BrokerError, match="unset KAFKA_BOOTSTRAP_SERVERS"):
        read_transaction_log(ExternalBroker("127.0.0.1:1"), "any")


@pytest.mark.parametrize("dump", [read_log, dump_log])
def test_log_of_somebody_elses_kafka_is_refused(dump):
    with pytest.raises(BrokerError, match=r"lies on the disk of a Kafka that the lab did not start .*KAFKA_BOOT"):
        dump(ExternalBroker("127.0.0.1:9"), "topic")


@pytest.mark.bench
def test_log_of_an_unknown_partition_is_refused(broker):
    with pytest.raises(NoSuchPartition, match="partition 7 of topic 'nowhere'"):
        dump_log(broker, "nowhere", 7)


def test_unreachable_kafka_is_named(monkeypatch):
    monkeypatch.setattr("labs.equipment.topics.PATIENCE_MS", 200)
    with pytest.raises(KafkaUnreachable, match=r"no Kafka answers at 127\.0\.0\.1:9"):
        read_transactions("127.0.0.1:9")


# The plot, of handwritten logs


@pytest.fixture(autouse=True)
def _no_figure_left():
    yield
    plt.close("all")


def handwritten(*entries: tuple[int, str]) -> DataFrame:
    columns = DataFrame([(*each, 0) for each in entries], columns=["producer id", "status", "epoch"])
    return columns.rename_axis("offset")


def boxes(ax: Axes, colour: str) -> list[tuple[float, float]]:
    """Return from where to where the boxes of a colour reach."""
    found = [box for box in bars(ax) if to_hex(box.get_facecolor(), keep_alpha=True) == f"{colour.lower()}ff"]
    return [(round(box.get_x(), 2), round(box.get_x() + box.get_width(), 2)) for box in found]


def test_each_epoch_of_a_producer_has_a_line_of_its_own():
    log = handwritten((3, "aborted"), (3, "abort marker"), (3, "committed"), (3, "commit marker"))
    ax = plot_transactions(log.assign(epoch=[0, 1, 2, 2]), 4)
    assert [label.get_text() for label in ax.get_yticklabels()] == [f"producer 3, epoch {n}" for n in range(3)]


MIXED = [
    (0, "committed"),
    (0, "commit marker"),
    (0, "aborted"),
    (0, "abort marker"),
    (0, "open"),
    (1, "no transaction"),
]


def test_title_states_what_committed_readers_see():
    assert plot_transactions(handwritten(*MIXED), 4).get_title("left") == (
        "read_committed sees 1 of 4 records: 1 aborted, 2 behind the last stable offset"
    )
    assert plot_transactions(handwritten(*MIXED[:2]), 2).get_title("left") == "read_committed sees 1 of 1 records"
    assert plot_transactions(handwritten(), 0).get_title("left") == "the log is empty"
    assert plot_transactions(handwritten(*MIXED), 4, title="mine").get_title("left") == "mine"


def test_each_producer_has_a_line_and_each_status_a_look():
    ax = plot_transactions(handwritten(*MIXED, (-1, "no transaction")), 4)
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "producer 0, epoch 0",
        "producer 1, epoch 0",
        "no producer id",
    ]
    assert boxes(ax, "#009E73") == [(-0.42, 0.42)]
    assert boxes(ax, "#0072B2") == [(3.58, 4.42)]
    assert boxes(ax, "#555555") == [(0.58, 1.42), (2.58, 3.42)]
    assert legend(ax) == [
        "committed 1",
        "no transaction 2",
        "open 1",
        "aborted 1",
        "C: commit marker 1",
        "A: abort marker 1",
    ]


def test_what_is_torn_and_what_is_named_stands_out():
    torn = plot_transactions(handwritten(*MIXED), 4, torn=[0], names={0: "7", 4: "8"})
    assert boxes(torn, "#CC79A7") == [(-0.42, 0.42)]
    assert {"7", "8"} <= {text.get_text() for text in torn.texts}
    assert "committed, half a batch 1" in legend(torn)
    assert "committed 1" not in legend(torn)


def test_last_stable_offset_and_log_end_are_marked():
    ax = plot_transactions(handwritten(*MIXED), 4)
    assert [points(line)[0][0] for line in ax.lines] == [3.5, 5.5]
    assert {"last stable offset 4", "log end 6"} <= {text.get_text() for text in ax.texts}
    assert (3.5, 2.0) in [(box.get_x(), box.get_width()) for box in bars(ax)]
    stable = plot_transactions(handwritten(*MIXED), 6)
    assert "last stable offset = log end = 6" in {text.get_text() for text in stable.texts}


def test_long_log_is_drawn_in_runs():
    committed, other = [(0, "committed")], [(1, "no transaction")]
    log = handwritten(*committed * 200, *other * 100, *committed * 200, (0, "commit marker"), *[(0, "open")] * 300)
    ax = plot_transactions(log, 501)
    assert boxes(ax, "#009E73") == [(-0.5, 199.5), (299.5, 499.5)]
    assert boxes(ax, "#0072B2") == [(500.5, 800.5)]


def test_plot_draws_on_the_axes_given():
    _, ax = plt.subplots()
    assert plot_transactions(handwritten(*MIXED), 4, ax) is ax
