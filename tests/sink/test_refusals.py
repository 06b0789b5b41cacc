"""What does not fit is refused, and what can be told for sure goes on: checkpoints, markers and topics that vanish."""

from __future__ import annotations

import functools
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException

from exactly_once_kafka.__main__ import main
from exactly_once_kafka.batch_sink import DeliveredBatch
from exactly_once_kafka.deadline import Deadline
from exactly_once_kafka.driver_transport import DriverTransport
from exactly_once_kafka.producer import PendingProducer
from exactly_once_kafka.sink import WRITERS, ExactlyOnceKafkaSink
from labs.equipment.topics import create_topic
from labs.equipment.waiting import eventually
from labs.evidence.checkpoint.checkpoint import read_checkpoint
from labs.faults.fault_points import Fault
from tests.pipeline.sink_runs import roll_back
from tests.sink.mutants import NoPlan

ALL = list(range(30))


@pytest.fixture(params=WRITERS)
def sink_for(sink_for, request):
    """Make a sink as the other tests do, once with either of its writers."""
    return functools.partial(sink_for, writers=request.param, driver_rows=0)


@pytest.fixture
def admin(broker):
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


def crash(copy, sink, point, batch, **more):
    with sink.points.armed(Fault(point, batch)), pytest.raises(StreamingQueryException, match="crashed on purpose"):
        copy(sink, **more)


def refused(match):
    return pytest.raises(StreamingQueryException, match=f"(?s)refuses batch.*{match}")


def delete_marker_topic(admin, sink):
    admin.delete_topics([f"{sink.name}-marker"])[f"{sink.name}-marker"].result(10)
    eventually(lambda: f"{sink.name}-marker" not in admin.list_topics(timeout=5).topics)


def lose(copy, *entries):
    """Delete the entries from the checkpoint, as an older copy of it lacks them."""
    for entry in entries:
        file = copy.checkpoint / entry
        file.unlink()
        file.with_name(f".{file.name}.crc").unlink()


def lose_batch_one(copy, sink, how):
    """Have batch 1 committed, and then lost from the checkpoint."""
    if how == "a copy from before batch 1 is restored":
        crash(copy, sink, "before_rows", 2)
        lose(copy, "offsets/2", "commits/1", "offsets/1")
    else:
        crash(copy, sink, "after_commit", 1)
        (copy.checkpoint / "offsets" / "1").write_bytes(b"")
        lose(copy, "offsets/1")  # by an operator, since Spark does not start with an empty one


@pytest.mark.bench
@pytest.mark.parametrize("how", ["a copy from before batch 1 is restored", "a power cut empties offsets/1"])
def test_checkpoint_that_lost_a_batch_is_refused_where_another_is_planned_instead(copy, sink_for, how):
    sink = sink_for()
    lose_batch_one(copy, sink, how)
    with refused(r"another batch 1 was committed.*\{\"0\":20\}.*\{\"0\":25\}"):
        copy(sink_for(to=sink.topic), records_per_batch=15)
    assert copy.published(sink) == ALL[:20]


@pytest.mark.long
def test_marker_that_is_not_decided_yet_is_waited_for_before_a_batch_is_refused(copy, sink_for, monkeypatch):
    """As when Kafka died right after it answered a commit, and is back before it has written what ends it."""
    sink = sink_for()
    crash(copy, sink, "before_rows", 2)
    again = sink_for(to=sink.topic)
    decided = again._store.read
    monkeypatch.setattr(
        again._store, "read", lambda patience, undecided=False: None if undecided else decided(patience)
    )
    copy(again)
    assert copy.published(sink) == ALL


@pytest.mark.bench
def test_checkpoint_that_lost_its_last_batch_is_refused_though_the_same_offsets_are_planned_again(
    copy, sink_for, broker
):
    """The time of planning decides, too, what a batch holds. An operator may know that it does not."""
    sink = sink_for()
    lose_batch_one(copy, sink, "a power cut empties offsets/1")
    with refused(r"another batch 1 was committed.*planned_ms"):
        copy(sink_for(to=sink.topic))
    assert copy.published(sink) == ALL[:20]
    servers = ["--bootstrap-servers", broker.bootstrap_servers]
    assert main(["adopt", sink.name, "--batch", "1", "--checkpoint", str(copy.checkpoint), *servers]) == 0
    copy(sink_for(to=sink.topic))
    assert copy.published(sink) == ALL


@pytest.mark.bench
def test_mutant_that_knows_a_batch_by_its_number_alone_loses_rows(copy, sink_for):
    sink = sink_for(NoPlan)
    lose_batch_one(copy, sink, "a power cut empties offsets/1")
    copy(sink_for(NoPlan, to=sink.topic), records_per_batch=15)
    assert len(copy.published(sink)) < len(ALL)


@pytest.mark.bench
def test_batch_without_a_query_is_refused(copy, sink_for):
    """As with PYSPARK_PIN_THREAD=false, or in a thread of one's own: Spark's local properties do not arrive."""
    sink = sink_for()
    with ThreadPoolExecutor() as another, refused("PYSPARK_PIN_THREAD"):
        copy(lambda rows, batch_id: another.submit(sink, rows, batch_id).result())
    assert copy.published(sink) == []


@pytest.mark.bench
def test_deleted_checkpoint_is_refused(copy, sink_for):
    sink = sink_for()
    copy(sink)
    shutil.rmtree(copy.checkpoint)
    with refused(rf"batch 2 was committed by another query.*to do:.*adopt {sink.name}"):
        copy(sink_for(to=sink.topic))
    assert copy.published(sink) == ALL


@pytest.mark.bench
def test_checkpoint_rolled_back_two_batches_is_refused(copy, sink_for):
    sink = sink_for()
    copy(sink)
    roll_back(copy.checkpoint, batches=2)
    with refused("the last batch committed is 2"):
        copy(sink_for(to=sink.topic))
    assert copy.published(sink) == ALL


@pytest.mark.bench
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("batch", [0, 1])
def test_deleted_marker_topic_is_refused(copy, sink_for, admin, batch, again):
    sink = sink_for()
    crash(copy, sink, "after_commit", batch)
    delete_marker_topic(admin, sink)
    if again:
        create_topic(copy.servers, f"{sink.name}-marker", 1, cleanup_policy="compact")
    with refused("no marker" if batch else "deleted and created again"):
        copy(sink_for(to=sink.topic))
    assert copy.published(sink) == ALL[: 10 * batch + 10]


@pytest.mark.long
def test_record_that_is_no_marker_is_refused_with_its_place_and_the_marker_before_it(copy, sink_for):
    sink = sink_for()
    crash(copy, sink, "after_commit", 1)
    producer = Producer({"bootstrap.servers": copy.servers})
    producer.produce(f"{sink.name}-marker", None, key=sink.name)
    assert producer.flush(30) == 0
    with refused(rf"record \d+ of the marker's topic '{sink.name}-marker'.*tombstone.*before it: batch 1"):
        copy(sink_for(to=sink.topic))
    assert copy.published(sink) == ALL[:20]


@pytest.mark.long
def test_crash_before_anything_was_committed_goes_on(copy, sink_for):
    sink = sink_for()
    crash(copy, sink, "before_commit", 0)
    copy(sink_for(to=sink.topic))
    assert copy.published(sink) == ALL


@pytest.mark.long
def test_topic_that_would_forget_the_marker_is_refused(copy, sink_for):
    sink = sink_for(marker_topic=create_topic(copy.servers, "forgetful", 1))
    with refused("cleanup.policy=delete"):
        copy(sink)
    assert copy.published(sink) == []


@pytest.mark.long
def test_adopted_batch_counts_as_done_without_its_plan(copy, sink_for, admin, broker):
    sink = sink_for()
    crash(copy, sink, "after_commit", 1)
    delete_marker_topic(admin, sink)
    query_id = read_checkpoint(copy.checkpoint).query_id
    assert query_id
    servers = ["--bootstrap-servers", broker.bootstrap_servers]
    assert main(["adopt", sink.name, "--batch", "1", "--query-id", query_id, *servers]) == 0
    copy(sink_for(to=sink.topic))
    assert copy.published(sink) == ALL


@pytest.mark.long
def test_second_query_of_the_same_name_is_refused_and_the_first_goes_on(copy, sink_for, spark, tmp_path):
    sink, refusals = sink_for(), []

    class Intrude:
        point, batch = "before_rows", 1

        def strike(self):
            with pytest.raises(StreamingQueryException) as refusal:
                type(copy)(spark, copy.servers, copy._source, tmp_path / "another")(sink_for(to=sink.topic))
            refusals.append(str(refusal.value))

    with sink.points.armed(Intrude()):
        copy(sink)
    assert "another query" in refusals[0]
    assert copy.published(sink) == ALL


class OfAnotherDriver(ExactlyOnceKafkaSink):
    """A sink as in another process: it does not drop its epoch when other sinks publish, and does not know what was
    delivered to them."""

    _delivered: ClassVar[dict[tuple[str, ...], DeliveredBatch]] = {}

    @property
    def has_ended(self) -> bool:
        return False


def wait_for_epoch(sink):
    """Wait until the epoch of the sink's next batch has come, where it is asked for in the background."""
    assert sink.transport.has_epoch
    if isinstance(sink.transport, DriverTransport) and sink.transport.pending:
        sink.transport.pending.take(Deadline(30))


@pytest.mark.long
def test_zombie_that_finds_its_batch_done_does_not_fence_the_living(copy, sink_for, spark):
    zombie = sink_for(OfAnotherDriver)
    crash(copy, zombie, "before_checkpoint", 0)
    wait_for_epoch(zombie)
    living = sink_for(to=zombie.topic)

    class WakesUp:
        point, batch = "before_rows", 1

        def strike(self):
            zombie(spark.range(1).selectExpr("string(id) as value"), 0)
            assert not zombie.transport.has_epoch

    with living.points.armed(WakesUp()):
        copy(living)
    assert copy.published(living) == ALL


@pytest.mark.bench
def test_marker_that_was_set_back_between_two_runs_of_a_sink_counts(copy, sink_for):
    """The operator knows that batch 1 is lost; the epoch that the sink has from its last run is fenced."""
    sink = sink_for()
    crash(copy, sink, "before_checkpoint", 1)
    back = ["--batch", "0", "--checkpoint", str(copy.checkpoint), "--force", "--bootstrap-servers", copy.servers]
    assert main(["adopt", sink.name, *back]) == 0
    copy(sink)
    assert copy.published(sink) == sorted([*ALL, *ALL[10:20]])


@pytest.mark.bench
def test_marker_topic_made_anew_between_two_runs_of_a_sink_is_read_from_its_beginning(copy, sink_for, admin):
    """It ends where the deleted one ended: what is in it was not read yet, even so."""
    sink = sink_for()
    crash(copy, sink, "before_rows", 2)
    delete_marker_topic(admin, sink)
    adopted = ["--batch", "1", "--checkpoint", str(copy.checkpoint), "--bootstrap-servers", copy.servers]
    assert main(["adopt", sink.name, *adopted]) == 0
    crash(copy, sink_for(to=sink.topic), "after_commit", 2)
    copy(sink)
    assert copy.published(sink) == ALL


@pytest.mark.bench
def test_sink_goes_on_after_a_run_in_another_process(copy, sink_for):
    sink = sink_for(OfAnotherDriver)
    crash(copy, sink, "before_checkpoint", 0)
    crash(copy, sink_for(to=sink.topic), "before_rows", 2)
    copy(sink)
    assert copy.published(sink) == ALL


@pytest.mark.long
def test_reader_of_a_shared_marker_topic_waits_for_what_others_have_open(copy, sink_for):
    shared = create_topic(copy.servers, "shared-markers", 1, cleanup_policy="compact")
    one, two = sink_for(marker_topic=shared), sink_for(marker_topic=shared, writers="driver")
    crash(copy, one, "after_commit", 0)
    marker = one._store.read(Deadline(30))
    one._store.forget()
    producer = PendingProducer(two._settings).take(Deadline(30))
    producer.begin_transaction()
    two._store.send(marker, producer, Deadline(30))
    with pytest.raises(TimeoutError, match="could not be read"):
        one._store.read(Deadline(2))
    assert one._store.read(Deadline(30), undecided=True) == marker  # committed before that was begun
    producer.abort_transaction(10)
    assert one._store.read(Deadline(30)) == marker
    assert two._store.read(Deadline(30)) is None
