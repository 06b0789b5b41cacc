"""What all sinks promise: a batch is one batch, whole, at one place; in doubt it is refused."""

from __future__ import annotations

import contextlib
import itertools
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from confluent_kafka.admin import AdminClient
from pyspark import InheritableThread
from pyspark.errors import StreamingQueryException
from pyspark.serializers import CloudPickleSerializer
from sqlalchemy import BigInteger, Column, MetaData, String, Table, create_engine, select

from exactly_once_kafka.batch_sink import BatchSink
from exactly_once_kafka.errors import SinkRefused
from exactly_once_kafka.points import FAULT_POINTS
from exactly_once_kafka.query import NOTES
from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.equipment.postgres import Postgres
from labs.equipment.topics import create_topic
from labs.equipment.waiting import eventually
from labs.faults.fault_points import Fault, FaultPoints, InjectedCrash
from labs.faults.supervisor import Supervisor
from labs.pipeline.sinks.database_sink import MARKERS, DatabaseSink
from labs.pipeline.sinks.file_sink import FileSink, batches, read_entry
from tests.sink.conftest import numbers_in
from tests.sink.crashes import crashes

EVERY = list(range(30))
NUMBER = "int(string(value))"
EVEN, ODD = f"{NUMBER} % 2 = 0", f"{NUMBER} % 2 = 1"
ONE_NAME = "one-name-{}"
counter = itertools.count()


class Kind(NamedTuple):
    """A kind of sink: how it is made, for a place of its own or for another `place`, and what is published there."""

    make: Callable[..., Any]
    published: Callable[[Any], list[int]]
    places: Callable[[], Any]
    value: str = "value"  # an expression of a row's value


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with Postgres() as started:
        yield started


def kafka(broker, topic, writers) -> Kind:
    servers = broker.bootstrap_servers

    def make(name, place, **options):
        options = {"bootstrap_servers": servers, "writers": writers, "driver_rows": 0} | options
        return ExactlyOnceKafkaSink(name, place, **options)

    return Kind(make, lambda sink: sorted(numbers_in(servers, sink.topic)), topic)


def database(url) -> Kind:
    def place() -> Table:
        columns: list[Column[Any]] = [
            Column("n", BigInteger),
            Column("batch_id", BigInteger),
            Column("attempt", String),
        ]
        return Table(f"numbers_{next(counter)}", MetaData(), *columns)

    def published(sink) -> list[int]:
        with create_engine(url).connect() as connection:
            sink.table.create(connection, checkfirst=True)
            return sorted(connection.execute(select(sink.table.c.n)).scalars())

    make = lambda name, place, **options: DatabaseSink(name, url, place, **options)  # noqa: E731
    return Kind(make, published, place, "concat('{\"n\": ', string(value), '}')")


def files(tmp_path) -> Kind:
    def published(sink) -> list[int]:
        files = [read_entry(sink.directory, batch).file for batch in batches(sink.directory)]
        return sorted(int(line) for file in files for line in (sink.directory / file).read_text().split())

    make = lambda name, place, **options: FileSink(place, **options)  # noqa: E731
    return Kind(make, published, lambda: tmp_path / f"results-{next(counter)}")


NAMED = ["driver", "executors", "sqlite", "postgres"]  # those of which two may have one name


@pytest.fixture(params=[*NAMED, "files"])
def kind(request, tmp_path) -> Kind:
    if request.param in ("driver", "executors"):
        return kafka(request.getfixturevalue("broker"), request.getfixturevalue("topic"), request.param)
    if request.param == "files":
        return files(tmp_path)
    if request.param == "sqlite":
        return database(f"sqlite:///{tmp_path / 'results.db'}")
    return database(request.getfixturevalue("postgres").url)


named = pytest.mark.parametrize("kind", NAMED, indirect=True)


@pytest.fixture
def sink_for(kind):
    """Make a sink: `sink_for()`, `sink_for(of_name=sink)`, `sink_for(of_name=sink, at=sink)`."""

    def sink_for(of_name=None, at=None, **options):
        place = kind.places() if at is None else getattr(at, "topic", None) or getattr(at, "table", None)
        place = at.directory if isinstance(at, FileSink) else place
        return kind.make(of_name.name if of_name else ONE_NAME.format(next(counter)), place, **options)

    return sink_for


@pytest.fixture
def run(copy, kind):
    """Copy the numbers from where the checkpoint is by a function of the rows, as values of the kind, and the batch."""
    return lambda publish, **more: copy(lambda rows, n: publish(values_of(rows, kind), n), **more)


def values_of(rows, kind, where="true"):
    return rows.where(where).selectExpr(f"{kind.value} AS value")


def new_process():
    BatchSink._delivered.clear()


def refused(match):
    return pytest.raises(StreamingQueryException, match=f"(?s)refuses batch.*{match}")


def parts(kind, first, second):
    def publish(rows, batch_id):
        first(values_of(rows, kind, EVEN), batch_id)
        second(values_of(rows, kind, ODD), batch_id)

    return publish


@pytest.mark.bench
def test_crash_before_and_after_each_step_neither_loses_nor_doubles(copy, kind, sink_for):
    """The points are those of the protocol: a step that is added to it is crashed as well."""
    sink = sink_for(points=FaultPoints())
    ways = crashes(sink.protocol, epochs=isinstance(sink, ExactlyOnceKafkaSink))
    faults = [Fault(at, batch) for batch, several in enumerate(ways, start=1) for at in several]
    assert {fault.point for fault in faults} >= set(FAULT_POINTS)

    def attempt(_):
        copy(lambda rows, n: sink(values_of(rows, kind), n), records_per_batch=1)

    with sink.points.armed(*faults) as struck:
        Supervisor(attempt, restarts=len(faults), delay=0, report=lambda _: None).run()
    assert set(struck) == set(faults)  # in another order where the batch before was only drained, and left no epoch
    assert kind.published(sink) == EVERY


@pytest.mark.bench
def test_other_part_of_a_batch_is_refused_after_a_restart_too(copy, kind, sink_for):
    sink = sink_for()
    for _ in range(2):
        with refused("received other rows of it before"):
            copy(parts(kind, sink, sink))
    new_process()
    with refused("neither a restart nor a corrected query publishes"):
        copy(parts(kind, sink, sink_for(of_name=sink, at=sink)))
    assert kind.published(sink) == EVERY[:10:2]


@pytest.mark.long
def test_other_part_of_a_batch_is_refused_by_a_twin(copy, kind, sink_for):
    sink = sink_for()
    with refused("received other rows of it before"):
        copy(parts(kind, sink, sink_for(of_name=sink, at=sink)))
    assert kind.published(sink) == EVERY[:10:2]


@pytest.mark.long
def test_part_that_differs_only_in_the_names_of_its_columns_is_refused(copy, kind, sink_for):
    """For Spark, these two are the same: one is computed as the other."""
    sink, of_another = sink_for(), kind.value.replace("string(value)", f"string(100 + {NUMBER})")
    if of_another == kind.value:
        of_another = f"string(100 + {NUMBER})"

    def by_column(rows, batch_id):
        sink(rows.selectExpr(f"{kind.value} AS value", f"{of_another} AS other"), batch_id)
        sink(rows.selectExpr(f"{kind.value} AS other", f"{of_another} AS value"), batch_id)

    with refused("received other rows of it before"):
        copy(by_column)
    assert kind.published(sink) == EVERY[:10]


@pytest.mark.long
def test_the_same_rows_handed_over_again_do_no_harm(copy, kind, sink_for):
    sink = sink_for()
    twin = sink_for(of_name=sink, at=sink)

    def three_times(rows, batch_id):
        for each in (sink, sink, twin):
            each(values_of(rows, kind), batch_id)

    copy(three_times)
    assert kind.published(sink) == EVERY


@pytest.mark.bench
@named
def test_one_name_for_two_places_is_refused_after_a_restart_too(run, kind, sink_for):
    first = sink_for()
    second = sink_for(of_name=first)

    def to_both(rows, batch_id):
        first(rows, batch_id)
        second(rows, batch_id)

    def in_other_order(rows, batch_id):
        second(rows, batch_id)
        first(rows, batch_id)

    for attempt in (to_both, to_both, in_other_order):
        with refused("a sink of the same name received it before"):
            run(attempt)
        new_process()
    assert kind.published(first) == EVERY[:10]
    assert kind.published(second) == []


@pytest.mark.long
def test_sinks_for_two_places_each_with_a_name_of_its_own_get_all(run, kind, sink_for):
    sinks = sink_for(), sink_for()
    run(lambda rows, batch_id: [sink(rows, batch_id) for sink in sinks])
    assert [kind.published(sink) for sink in sinks] == [EVERY, EVERY]


@pytest.mark.long
def test_one_batch_from_two_threads_at_once_is_published_once(run, kind, sink_for):
    sink = sink_for()
    twin = sink_for(of_name=sink, at=sink)

    def by_threads(rows, batch_id):
        assert in_threads(lambda each: each(rows, batch_id), sink, sink, twin) == []

    run(by_threads)
    assert kind.published(sink) == EVERY


@pytest.mark.long
def test_two_parts_from_two_threads_at_once_are_refused(copy, kind, sink_for):
    sink, raised = sink_for(), list[Exception]()

    def by_threads(rows, batch_id):
        raised.extend(in_threads(lambda where: sink(values_of(rows, kind, where), batch_id), EVEN, ODD))
        raise raised[0]

    with refused("received other rows of it before"):
        copy(by_threads)
    assert [type(error) for error in raised] == [SinkRefused]
    assert kind.published(sink) in (EVERY[:10:2], EVERY[1:10:2])


def in_threads(call, *of_each) -> list[Exception]:
    """Call it in a thread for each, and return what they raised."""
    raised = list[Exception]()

    def caught(each):
        try:
            call(each)
        except Exception as error:
            raised.append(error)

    threads = [InheritableThread(caught, args=(each,)) for each in of_each]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return raised


@pytest.mark.long
def test_thread_that_does_not_inherit_is_refused_and_told_how(run, kind, sink_for):
    sink, raised = sink_for(), list[Exception]()

    def in_a_thread(rows, batch_id):
        def caught():
            try:
                sink(rows, batch_id)
            except SinkRefused as error:
                raised.append(error)

        thread = threading.Thread(target=caught)
        thread.start()
        thread.join(60)
        raise raised[0]

    with refused("InheritableThread"):
        run(in_a_thread)


@pytest.mark.long
def test_other_rows_after_a_failure_that_may_have_published_are_refused(copy, kind, sink_for):
    sink = sink_for(points=(points := FaultPoints()))

    def swallowed(rows, batch_id):
        with contextlib.suppress(InjectedCrash):
            sink(values_of(rows, kind, EVEN), batch_id)
        sink(values_of(rows, kind, ODD), batch_id)

    with points.armed(Fault("after_commit", 0)), refused("received other rows of it before"):
        copy(swallowed)
    assert kind.published(sink) == EVERY[:10:2]


@pytest.mark.long
def test_other_rows_after_a_failure_that_published_nothing_are_all_published(copy, kind, sink_for):
    """As where a row is bad, and is filtered for a second attempt."""
    sink = sink_for(points=(points := FaultPoints()))

    def swallowed(rows, batch_id):
        with contextlib.suppress(InjectedCrash):
            sink(values_of(rows, kind, EVEN), batch_id)
            return
        sink(values_of(rows, kind), batch_id)

    with points.armed(*(Fault("before_commit", n) for n in range(3))):
        copy(swallowed)
    assert kind.published(sink) == EVERY


@pytest.mark.long
@pytest.mark.parametrize(("point", "version"), [("before_commit", 1), ("after_commit", 0)])
def test_batch_that_is_computed_otherwise_when_it_is_repeated_is_there_in_one_version(
    copy, kind, sink_for, point, version
):
    """As a query does that asks for the time, or that was edited between the two runs."""
    sink = sink_for(points=(points := FaultPoints()))

    def run(version):
        more = f"string({NUMBER} + {100 * version}) AS value"
        copy(lambda rows, n: sink(values_of(rows.selectExpr(more), kind), n))

    with points.armed(Fault(point, 1)), pytest.raises(StreamingQueryException, match="crashed on purpose"):
        run(version=0)
    run(version=1)
    assert kind.published(sink) == sorted([*range(10), *(n + 100 * version for n in range(10, 20)), *range(120, 130)])


@pytest.mark.long
def test_batch_that_is_planned_otherwise_is_refused(run, copy, kind, sink_for):
    sink = sink_for(points=(points := FaultPoints()))
    with points.armed(Fault("after_commit", 1)), pytest.raises(StreamingQueryException, match="crashed on purpose"):
        run(sink)
    for name in ("offsets/1", "offsets/.1.crc"):
        (copy.checkpoint / name).unlink()
    with refused("another batch 1 was committed"):
        run(sink_for(of_name=sink, at=sink), records_per_batch=15)
    assert kind.published(sink) == EVERY[:20]


def crash(run, sink, batch, point="after_commit"):
    with sink.points.armed(Fault(point, batch)), pytest.raises(StreamingQueryException, match="crashed on purpose"):
        run(sink)


@named
@pytest.mark.bench
def test_sink_that_is_renamed_while_batch_0_may_be_published_is_refused_until_it_has_its_name_again(
    run, kind, sink_for
):
    """The checkpoint knows nothing of batch 0 yet, and no marker has the new name: the batch would come twice."""
    sink = sink_for(points=FaultPoints())
    crash(run, sink, 0)
    for _ in range(2):
        with refused(f"batch 0 may have been published by the sink '{sink.noted_as}'"):
            run(sink_for(at=sink))
    assert kind.published(sink) == EVERY[:10]
    run(sink_for(of_name=sink, at=sink))
    assert kind.published(sink) == EVERY


@pytest.mark.long
def test_sink_that_is_renamed_later_is_refused(run, kind, sink_for):
    sink = sink_for(points=FaultPoints())
    crash(run, sink, 1)
    with refused("no marker"):
        run(sink_for())
    assert kind.published(sink) == EVERY[:20]


@named
@pytest.mark.bench
@pytest.mark.parametrize("batch", [0, 1])
def test_sink_that_goes_to_another_place_under_its_name_publishes_each_batch_in_one_of_the_two(
    run, kind, sink_for, batch
):
    sink = sink_for(points=FaultPoints())
    crash(run, sink, batch)
    run(other := sink_for(of_name=sink))
    done = 10 * batch + 10
    assert (kind.published(sink), kind.published(other)) == (EVERY[:done], EVERY[done:])


@named
@pytest.mark.bench
def test_two_sinks_of_a_query_that_dies_between_them_in_batch_0_go_on(run, kind, sink_for):
    """The second one finds a note of the first in the checkpoint, and none of its own: that is no other name of it."""
    first, second = sink_for(points=FaultPoints()), sink_for()

    def to_both(rows, batch_id):
        first(rows, batch_id)
        second(rows, batch_id)

    with first.points.armed(Fault("after_commit", 0)), pytest.raises(StreamingQueryException, match="on purpose"):
        run(to_both)
    run(to_both)
    assert kind.published(first) == kind.published(second) == EVERY


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_sinks_of_one_name_for_kafka_and_for_a_database_are_two(copy, kind, sink_for, broker, topic):
    there = sink_for(points=FaultPoints())
    here = ExactlyOnceKafkaSink(there.name, topic(), bootstrap_servers=broker.bootstrap_servers)

    def to_both(rows, batch_id):
        here(rows, batch_id)
        there(values_of(rows, kind), batch_id)

    with there.points.armed(Fault("after_commit", 0)), pytest.raises(StreamingQueryException, match="on purpose"):
        copy(to_both)
    copy(to_both)
    assert kind.published(there) == copy.published(here) == EVERY


@pytest.mark.bench
@pytest.mark.parametrize("kind", ["sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize("batch", [0, 1])
def test_deleted_table_of_markers_is_refused(run, kind, sink_for, batch):
    sink = sink_for(points=FaultPoints())
    crash(run, sink, batch)
    MARKERS.drop(sink.engine)
    for _ in range(2):
        with refused("no marker" if batch else "table 'batch_markers' of the database was deleted"):
            run(sink_for(of_name=sink, at=sink))
    assert kind.published(sink) == EVERY[: 10 * batch + 10]


@pytest.mark.bench
@pytest.mark.parametrize("kind", ["driver", "sqlite"], indirect=True)
def test_note_in_the_checkpoint_that_cannot_be_read_fails_the_batch_which_a_restart_publishes(
    run, copy, kind, sink_for
):
    sink = sink_for()
    note = copy.checkpoint / NOTES / quote(sink.noted_as, safe="")
    note.mkdir(parents=True)
    with pytest.raises(StreamingQueryException, match="batch 0: the checkpoint cannot be read or written"):
        run(sink)
    note.rmdir()
    run(sink_for(of_name=sink, at=sink))
    assert kind.published(sink) == EVERY


@pytest.mark.long
@pytest.mark.parametrize("kind", ["driver", "executors"], indirect=True)
@pytest.mark.parametrize("point", ["before_commit", "after_commit"])
def test_topic_of_the_results_made_anew_before_the_first_restart_gets_what_was_not_published(
    run, kind, sink_for, broker, point
):
    sink = sink_for(points=FaultPoints())
    crash(run, sink, 0, point)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics([sink.topic])[sink.topic].result(10)
    eventually(lambda: sink.topic not in admin.list_topics(timeout=5).topics)
    create_topic(broker.bootstrap_servers, sink.topic, partitions=1)
    run(sink_for(of_name=sink, at=sink))
    assert kind.published(sink) == (EVERY if point == "before_commit" else EVERY[10:])


@pytest.mark.long
def test_sink_that_spark_connect_would_send_away_says_that_it_stays(kind, sink_for):
    sink = sink_for()
    with pytest.raises(pickle.PicklingError, match="Spark Connect"):
        CloudPickleSerializer().dumps(lambda rows, batch_id: sink(rows, batch_id))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["driver"], indirect=True)
@pytest.mark.parametrize("difference", ["address", "cluster", "marker_topic", "topics of the rows"])
def test_one_name_for_two_places_of_kafka_is_refused_whatever_tells_them_apart(run, kind, sink_for, broker, difference):
    first = sink_for()
    if difference == "address":
        second = sink_for(of_name=first, bootstrap_servers=",".join([broker.bootstrap_servers] * 2))
    elif difference == "cluster":
        second = sink_for(of_name=first, at=first, bootstrap_servers="127.0.0.1:1")
    elif difference == "marker_topic":
        second = sink_for(of_name=first, at=first, marker_topic=f"{first.name}-other-marker")
    else:
        second = kind.make(first.name, None)

    def to_both(rows, batch_id):
        first(rows, batch_id)
        second(rows.selectExpr("value", f"'{first.topic}' AS topic"), batch_id)

    with refused("a sink of the same name received it before"):
        run(to_both)
    assert kind.published(first) == EVERY[:10]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_one_file_by_two_urls_is_one_database(copy, kind, sink_for, tmp_path, monkeypatch):
    sink = sink_for()
    monkeypatch.chdir(tmp_path)
    twin = DatabaseSink(sink.name, "sqlite:///results.db", sink.table)
    with refused("received other rows of it before"):
        copy(parts(kind, sink, twin))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
def test_one_server_by_two_urls_is_one_database(copy, kind, sink_for, postgres):
    sink = sink_for()
    twin = DatabaseSink(sink.name, f"{postgres.url}&port=5432&application_name=twin", sink.table)
    for _ in range(2):
        with refused("received other rows of it before"):
            copy(parts(kind, sink, twin))
    assert kind.published(sink) == EVERY[:10:2]


@pytest.mark.long
def test_one_directory_by_two_paths_is_one_place(copy, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "results", target_is_directory=True)
    (tmp_path / "results").mkdir()
    kind = files(tmp_path)
    with refused("received other rows of it before"):
        copy(parts(kind, FileSink(tmp_path / "results"), FileSink(f"{tmp_path}/link/../link")))


@pytest.mark.long
@pytest.mark.parametrize("name", ["x" * 242, "a/b ü 50%41" * 7, "..."], ids=len)
def test_name_that_a_sink_may_have_is_one_that_works(copy, topic, broker, name):
    marker_topic = None if "x" in name else "markers-of-strange-names"
    sink = ExactlyOnceKafkaSink(name, topic(), bootstrap_servers=broker.bootstrap_servers, marker_topic=marker_topic)
    for _ in range(2):
        copy(sink)
    assert copy.published(sink) == EVERY


@pytest.mark.long
@pytest.mark.parametrize("writers", ["driver", "executors"])
def test_two_sinks_whose_markers_topics_kafka_takes_for_one_are_told_to_have_a_marker_topic(
    copy, topic, broker, writers
):
    word = f"name{next(counter)}"
    first, second = (
        ExactlyOnceKafkaSink(name, topic(), bootstrap_servers=broker.bootstrap_servers, writers=writers)
        for name in (f"a.{word}", f"a_{word}")
    )

    def to_both(rows, batch_id):
        for sink in (first, second):
            sink(rows, batch_id)

    with refused("[Gg]ive the sink a marker_topic"):
        copy(to_both)


@pytest.mark.long
@pytest.mark.parametrize("writers", ["driver", "executors"])
@pytest.mark.parametrize("topic_of_row", ["string(null)", "'no such topic, for it has spaces'", "''", "'a\\0b'"])
def test_row_that_names_no_topic_is_refused(copy, topic, broker, writers, topic_of_row):
    sink = ExactlyOnceKafkaSink(
        "rows-name-topics", bootstrap_servers=broker.bootstrap_servers, writers=writers, marker_topic=f"{topic()}-m"
    )
    with pytest.raises(StreamingQueryException, match=r"(?i)refuses batch 0.*topic"):
        copy(lambda rows, n: sink(rows.selectExpr("value", f"{topic_of_row} AS topic"), n))
