"""Every sink, and a batch that Spark plans anew or adds: by an older checkpoint, or when it repartitions the state."""

from __future__ import annotations

import itertools
import json
import shutil
import time
from abc import ABC, abstractmethod
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException
from sqlalchemy import BigInteger, Column, MetaData, String, Table, create_engine, select

from exactly_once_kafka.__main__ import main
from exactly_once_kafka.deadline import Deadline
from exactly_once_kafka.marker_store import MarkerStore
from exactly_once_kafka.plan import PLANNED, spelled
from exactly_once_kafka.protocol import is_published
from exactly_once_kafka.sink import WRITERS
from labs.equipment.waiting import eventually
from labs.evidence.readers.results import read_committed
from labs.faults.fault_points import Fault
from labs.pipeline.query.ip_count import read_source
from labs.pipeline.sinks.database_sink import DatabaseSink
from labs.pipeline.sinks.file_sink import FileSink, batches, read_entry

WORDS = Table(
    "words", MetaData(), *(Column(name, String) for name in ("word", "attempt")), Column("batch_id", BigInteger)
)
UPDATE = "word string, due double"


class Place(ABC):
    """Where results go: it makes a sink, and reads what was published, in order."""

    @abstractmethod
    def sink(self, points): ...

    @abstractmethod
    def published(self) -> list[str]: ...


class Files(Place):
    def __init__(self, directory):
        self.directory = directory

    def sink(self, points):
        return FileSink(self.directory, points=points)

    def published(self):
        entries = [read_entry(self.directory, batch) for batch in batches(self.directory)]
        assert [entry.batch_id for entry in entries] == list(range(len(entries)))
        lines = [(self.directory / entry.file).read_text().splitlines() for entry in entries]
        return sorted(json.loads(line)["word"] for line in itertools.chain(*lines))


class Database(Place):
    def __init__(self, directory):
        self.url = f"sqlite:///{directory / 'results.db'}"

    def sink(self, points):
        return DatabaseSink("words", self.url, WORDS, points=points)

    def published(self):
        with create_engine(self.url).connect() as connection:
            return sorted(connection.execute(select(WORDS.c.word)).scalars())


class Kafka(Place):
    def __init__(self, sink_for, servers, topic, writers):
        self._sink_for, self.servers, self.topic, self._writers = sink_for, servers, topic, writers

    def sink(self, points):
        return self._sink_for(to=self.topic, points=points, writers=self._writers, driver_rows=0)

    def published(self):
        return sorted(json.loads(m.value() or b"")["word"] for m in read_committed(self.servers, self.topic))


@pytest.fixture(params=[*WRITERS, "database", "files"])
def place(request, tmp_path):
    if request.param == "files":
        return Files(tmp_path / "results")
    if request.param == "database":
        return Database(tmp_path)
    broker, topic, sink_for = (request.getfixturevalue(name) for name in ("broker", "topic", "sink_for"))
    return Kafka(sink_for, broker.bootstrap_servers, topic(), request.param)


class Words:
    """Publishes the words in files that are due, in batches of a file each; with `counts`, each word once, by state."""

    def __init__(self, spark, directory, points, place):
        self._spark, self._directory, self._points, self._place = spark, directory, points, place
        self.checkpoint = directory / "checkpoint"
        (directory / "words").mkdir(parents=True)

    def add(self, **due):
        """Put a file of words in, each with the time when it is due."""
        lines = "".join(json.dumps({"word": word, "due": at}) + "\n" for word, at in due.items())
        (unfinished := self._directory / ".words").write_text(lines)
        unfinished.rename(self._directory / "words" / "-".join(due))

    def source(self):
        return self._spark.readStream.schema(UPDATE).json(str(self._directory / "words"))

    def run(self, *faults, state=False):
        due = self.source().where("timestamp_micros(bigint(due * 1e6)) <= current_timestamp()").select("word")
        results = due.dropDuplicates(["word"]) if state else due
        with self._points.armed(*faults):
            query = results.selectExpr("to_json(struct(word)) as value").writeStream.trigger(availableNow=True)
            sink = self._place.sink(self._points)
            query.option("checkpointLocation", str(self.checkpoint)).foreachBatch(sink).start().awaitTermination()

    def crash(self, point, batch, **more):
        with pytest.raises(StreamingQueryException, match="crashed on purpose"):
            self.run(Fault(point, batch), **more)

    def refused(self, match, **more):
        with pytest.raises(StreamingQueryException, match=f"(?s)refuses batch.*{match}"):
            self.run(**more)


class WordsInKafka(Words):
    """The words come from a topic: unlike those of files, its offsets may go back."""

    def __init__(self, servers, topic, *more):
        super().__init__(*more)
        self._servers, self._topic = servers, topic

    def add(self, **due):
        producer = Producer({"bootstrap.servers": self._servers})
        for word in due:
            producer.produce(self._topic, word)
        assert producer.flush(30) == 0

    def source(self):
        return read_source(self._spark, self._servers, self._topic).selectExpr("string(value) as word", "0.0 as due")


@pytest.fixture
def words(spark, tmp_path, points, place):
    return Words(spark, tmp_path, points, place)


NOW = 0


@pytest.mark.long
def test_checkpoint_one_batch_older_is_refused_where_the_file_source_has_other_files_by_now(words, place, tmp_path):
    words.add(a=NOW)
    words.run()
    shutil.copytree(words.checkpoint, tmp_path / "older")
    words.add(b=NOW)
    words.crash("after_commit", 1)
    shutil.rmtree(words.checkpoint)
    (tmp_path / "older").rename(words.checkpoint)
    words.add(c=NOW)
    for _ in range(2):
        words.refused('another batch 1 was committed.*"logOffset":1')
    assert place.published() == ["a", "b"]


@pytest.mark.long
def test_checkpoint_one_batch_older_is_refused_though_the_same_is_read_at_a_later_time(words, place, tmp_path):
    """As timeouts by the time of processing do: what falls due in between would be drained, and be lost."""
    words.add(a=NOW)
    words.run()
    shutil.copytree(words.checkpoint, tmp_path / "older")
    soon = time.time() + 30
    words.add(b=NOW, later=soon)
    words.crash("after_commit", 1)
    assert place.published() == ["a", "b"]
    shutil.rmtree(words.checkpoint)
    (tmp_path / "older").rename(words.checkpoint)
    eventually(lambda: time.time() > soon, timeout=60)
    words.refused("another batch 1 was committed")
    assert place.published() == ["a", "b"]


class WordsWithTimeouts(WordsInKafka):
    """Publishes each word, and that it has timed out some seconds later, by the time of processing.

    Spark then plans batches without end, most of them without rows and with the offsets of the last.
    """

    timeout = 15  # seconds

    def start(self):
        milliseconds = 1000 * self.timeout

        def watch(key, frames, state):
            import pandas

            if state.hasTimedOut:
                state.remove()
                yield pandas.DataFrame({"word": [f"{key[0]} timed out"]})
            else:
                state.update((1,))
                state.setTimeoutDuration(milliseconds)
                yield pandas.DataFrame({"word": [key[0]]})

        words = self.source().groupBy("word")
        watched = words.applyInPandasWithState(watch, "word string", "n long", "append", "ProcessingTimeTimeout")
        query = watched.selectExpr("to_json(struct(word)) as value").writeStream.trigger(
            processingTime="100 milliseconds"
        )
        sink = self._place.sink(self._points)
        return query.option("checkpointLocation", str(self.checkpoint)).foreachBatch(sink).start()

    def run_until(self, *published):
        query = self.start()
        try:
            eventually(lambda: query.exception() or set(self._place.published()) >= set(published), timeout=120)
        finally:
            query.stop()
        assert not query.exception(), query.exception()
        assert self._place.published() == sorted(published)

    def run(self, *faults, state=True):
        with self._points.armed(*faults):
            self.start().awaitTermination()

    def crash_in_the_next(self):
        """Crash when the first batch of the next run that is new is committed."""
        self.crash("after_commit", 1 + max(int(file.name) for file in (self.checkpoint / "offsets").glob("[0-9]*")))

    def wait_until_timed_out(self):
        due = time.time() + self.timeout
        eventually(lambda: time.time() > due, timeout=60)


@pytest.fixture
def words_with_timeouts(spark, broker, topic, tmp_path, points, place):
    words = WordsWithTimeouts(broker.bootstrap_servers, topic(), spark, tmp_path, points, place)
    words.add(a=NOW)
    words.run_until("a")
    shutil.copytree(words.checkpoint, tmp_path / "older")
    words.add(b=NOW)
    words.crash_in_the_next()
    assert set(place.published()) >= {"a", "b"}  # and that a has timed out, on a slow machine
    words.wait_until_timed_out()
    return words


@pytest.mark.long
def test_batch_that_is_planned_anew_with_a_timeout_in_it_is_refused(words_with_timeouts, place, tmp_path):
    """It reads what the published one has read, and holds a word more: that would be drained, and lost."""
    published = place.published()
    shutil.rmtree(words_with_timeouts.checkpoint)
    (tmp_path / "older").rename(words_with_timeouts.checkpoint)
    for _ in range(2):
        words_with_timeouts.refused(r"(another batch \d+ was committed|the last batch committed is \d+)")
    assert place.published() == published


@pytest.mark.long
def test_batch_that_is_repeated_after_a_timeout_does_not_hold_it_and_a_later_one_does(words_with_timeouts):
    words_with_timeouts.run_until("a", "b", "a timed out", "b timed out")


class NoPlanningTime(FileSink):
    """Knows a batch by its offsets alone."""

    @staticmethod
    def protocol(batch, has_epoch):
        previous_plan = batch.previous_plan and without_time(batch.previous_plan)
        timeless = replace(batch, plan=without_time(batch.plan), previous_plan=previous_plan)
        marker = yield "read marker"
        if is_published(marker and replace(marker, plan=without_time(marker.plan)), timeless):
            yield "drain"
            return
        yield "rows"
        yield "marker"
        yield "commit"


def without_time(plan):
    return spelled({key: value for key, value in json.loads(plan).items() if key != PLANNED})


@pytest.mark.long
def test_mutant_that_knows_a_batch_by_its_offsets_alone_loses_rows(spark, tmp_path, points):
    class Mutant(Files):
        def sink(self, points):
            return NoPlanningTime(self.directory, points=points)

    words = Words(spark, tmp_path, points, place := Mutant(tmp_path / "results"))
    words.add(a=NOW)
    words.run()
    shutil.copytree(words.checkpoint, tmp_path / "older")
    words.add(b=NOW)
    words.crash("after_commit", 1)
    shutil.rmtree(words.checkpoint)
    (tmp_path / "older").rename(words.checkpoint)
    words.add(c=NOW)
    words.run()
    assert place.published() == ["a", "b"]


@pytest.mark.long
def test_batch_that_is_repeated_by_its_plan_is_found_done(words, place):
    words.add(a=NOW)
    words.crash("after_commit", 0)
    words.add(b=NOW)
    words.crash("before_checkpoint", 1)
    words.run()
    assert place.published() == ["a", "b"]


@pytest.fixture
def repartition(spark):
    """Have Spark repartition the state, kept in RocksDB: `repartition(checkpoint, partitions, enforce=True)`."""
    provider = "spark.sql.streaming.stateStore.providerClass"
    before = spark.conf.get(provider)
    spark.conf.set(provider, "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")
    yield spark._streamingCheckpointManager.repartition
    spark.conf.set(provider, before)


@pytest.mark.long
def test_query_whose_state_was_repartitioned_goes_on(words, place, repartition):
    words.add(a=NOW)
    words.run(state=True)
    for partitions in (3, 4):
        repartition(str(words.checkpoint), partitions)
    words.add(b=NOW)
    words.crash("before_commit", 3, state=True)
    words.crash("after_commit", 3, state=True)
    words.add(a=NOW, c=NOW)
    words.run(state=True)
    assert place.published() == ["a", "b", "c"]


@pytest.mark.long
@pytest.mark.parametrize("published", [False, True])
def test_last_batch_that_repartitioning_gives_up_is_planned_anew_unless_it_was_published(
    spark, broker, topic, tmp_path, points, place, repartition, published
):
    words = WordsInKafka(broker.bootstrap_servers, topic(), spark, tmp_path / "of-kafka", points, place)
    words.add(a=NOW)
    words.run(state=True)
    words.add(b=NOW)
    words.crash("after_commit" if published else "before_rows", 1, state=True)
    repartition(str(words.checkpoint), 3, False)
    words.add(c=NOW)
    if not published:
        words.run(state=True)
        assert place.published() == ["a", "b", "c"]
        return
    words.refused("repartitions the state.*rows of batch 1 would come again", state=True)
    if isinstance(place, Kafka):
        adopt = ["adopt", f"sink-of-{place.topic}", "--batch", "2", "--checkpoint", str(words.checkpoint)]
        assert main([*adopt, "--bootstrap-servers", place.servers]) == 1
        store = MarkerStore(f"sink-of-{place.topic}", f"sink-of-{place.topic}-marker", place.servers, {})
        marker = store.read(Deadline(30))
        assert marker is not None
        assert marker.batch_id == 1
    assert place.published() == ["a", "b"]
