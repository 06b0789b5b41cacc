"""The prediction against real Spark: the same records, the same checkpoint, and never a result of the query."""

import uuid
from collections import Counter, defaultdict
from functools import cached_property
from pathlib import Path
from random import Random

import pytest
from pyspark.errors import StreamingQueryException

from labs.equipment.topics import create_topic
from labs.evidence.auditor.expected import count_by_window
from labs.evidence.checkpoint.checkpoint import Batch, Checkpoint, CheckpointError, read_checkpoint
from labs.evidence.checkpoint.planned_results import PlannedResults, planned_results, read_source_records
from labs.evidence.readers.results import read_results
from labs.pipeline.log.generate import START_MS, Traffic
from labs.pipeline.log.replay import source_producer
from labs.pipeline.query import ip_count
from labs.pipeline.records import parse_source_value, source_value
from labs.pipeline.sinks.at_least_once import AtLeastOnceKafkaSink

SEEDS = (1, 2, 3)
CRASHED_SEED, CRASHED_BATCH = SEEDS[-1], 8  # the sink fails when it has written this batch
MALFORMED = [b"nonsense", b"12,", b"1767225600000, 192.0.2.1", b"", None]


class Run:
    """A topic of records, a query over it in small batches, and where its results and its checkpoint are."""

    predicted_at_crash: PlannedResults

    def __init__(self, spark, broker, checkpoint: Path, partitions: int, records_per_batch: int):
        self.spark, self.servers, self.checkpoint = spark, broker.bootstrap_servers, str(checkpoint)
        self.source = create_topic(self.servers, f"test-source-{uuid.uuid4().hex}", partitions)
        self.sink = create_topic(self.servers, f"test-sink-{uuid.uuid4().hex}", 1)
        self.records_per_batch = records_per_batch
        self.accesses: list[tuple[int, str]] = []

    def produce(self, values_by_partition) -> None:
        producer = source_producer(self.servers)
        for partition, value in values_by_partition:
            producer.produce(self.source, value, partition=partition)
        assert producer.flush(30) == 0

    def run(self, crash_after: int | None = None) -> None:
        """Run the query to the end of the source, or until the sink has written batch `crash_after`."""
        sink = AtLeastOnceKafkaSink(self.sink, bootstrap_servers=self.servers)

        def write(rows, batch_id: int) -> None:
            sink(rows, batch_id)
            if batch_id == crash_after:
                raise RuntimeError("the crash")

        records = ip_count.read_source(self.spark, self.servers, self.source, records_per_batch=self.records_per_batch)
        query = ip_count.start_query(ip_count.count_ips(records), write, self.checkpoint)
        if crash_after is None:
            query.awaitTermination()
        else:
            with pytest.raises(StreamingQueryException, match="the crash"):
                query.awaitTermination()

    def planned_results(self) -> PlannedResults:
        return planned_results(read_checkpoint(self.checkpoint), read_source_records(self.servers, self.source))

    @cached_property
    def prediction(self):
        """What is predicted when the run has ended."""
        return self.planned_results()

    @cached_property
    def results(self):
        return read_results(self.servers, self.sink)

    @property
    def published(self) -> dict[int, dict]:
        """What the sink holds, per batch, each result once."""
        found: defaultdict[int, dict] = defaultdict(dict)
        for result in self.results:
            found[result.batch_id].setdefault((result.window_start, result.ip), result.count)
        return dict(found)


def traffic(run: Run, seed: int) -> None:
    """Fill both partitions with stragglers, malformed records and closing records among other traffic."""
    random = Random(seed)
    run.accesses = list(Traffic(1_800, seed=seed, clients=6, rate=30, disorder_ms=5_000, stragglers=0.05))
    values: list[bytes | None] = [source_value(*access) for access in run.accesses]
    latest = max(time_ms for time_ms, _ in run.accesses)
    for extra in [*MALFORMED * 4, source_value(START_MS + 20_000, "-"), source_value(START_MS, "-")]:
        values.insert(random.randrange(len(values)), extra)
    run.produce((random.random() < 0.3, each) for each in values)
    run.produce((partition, source_value(latest + 10_000, "-")) for partition in (0, 1))


@pytest.fixture(scope="module")
def runs(spark, broker, tmp_path_factory):
    """Return a finished run per seed; that of the last seed crashed once, and was predicted before its restart."""
    directory = tmp_path_factory.mktemp("checkpoints")
    found = {seed: Run(spark, broker, directory / str(seed), 2, 90) for seed in SEEDS}
    for seed, run in found.items():
        traffic(run, seed)
        if seed == CRASHED_SEED:
            run.run(crash_after=CRASHED_BATCH)
            run.predicted_at_crash = run.planned_results()
        run.run()
    return found


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_each_batch_publishes_what_was_predicted(runs, seed):
    run = runs[seed]
    assert len(run.prediction.emitted) > 20
    assert len(run.published) > 5
    assert {batch: results for batch, results in run.prediction.emitted.items() if results} == run.published
    assert (run.prediction.pending, run.prediction.unread, run.prediction.repeated) == ({}, 0, {})
    assert run.prediction.malformed == 4 * len(MALFORMED)


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_what_the_counts_lack_was_predicted_to_be_late(runs, seed):
    run = runs[seed]
    lacking = count_by_window(run.accesses)
    for results in run.published.values():
        lacking.subtract(results)
    assert {key: n for key, n in lacking.items() if n} == run.prediction.dropped
    assert run.prediction.dropped.total() > 20


@pytest.mark.long
def test_a_replay_doubles_what_was_predicted_for_the_batch_in_flight(runs):
    run = runs[CRASHED_SEED]
    assert run.predicted_at_crash.in_flight == CRASHED_BATCH
    assert len(run.predicted_at_crash.repeated) > 3
    seen = Counter((result.window_start, result.ip, result.count) for result in run.results)
    assert {(window, ip): count for (window, ip, count), times in seen.items() if times == 2} == (
        run.predicted_at_crash.repeated
    )
    assert max(seen.values()) == 2


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_a_batch_runs_with_the_latest_time_of_the_batches_before_it_less_the_allowed_lateness(runs, seed):
    run = runs[seed]
    times: defaultdict[int, list[int]] = defaultdict(list)
    batches = read_checkpoint(run.checkpoint).batches
    for partition, offset, time_ms, _ in read_source_records(run.servers, run.source):
        [batch] = [b for b in batches if b.start[run.source, partition] <= offset < b.end[run.source, partition]]
        times[batch.batch_id].append(time_ms or 0)
    latest = 0
    for batch in batches:
        assert batch.watermark_ms == max(0, latest - 5_000)
        latest = max([latest, *times[batch.batch_id]])
    assert [batch.next_watermark_ms for batch in batches[:-1]] == [batch.watermark_ms for batch in batches[1:]]


@pytest.mark.long
def test_the_boundaries_are_those_of_spark(spark, broker, tmp_path):
    """One record per batch, each on one side of a boundary: `end <= watermark` both to emit and to drop."""
    run = Run(spark, broker, tmp_path / "checkpoint", 1, 1)
    times = [9_999, 4_999, 10_000, 4_999, 4_999, 5_000, 25_000, 9_999, 9_999]
    run.produce((0, source_value(START_MS + time_ms, "192.0.2.1")) for time_ms in times)
    run.run()
    prediction = run.prediction
    assert {batch: results for batch, results in prediction.emitted.items() if results} == run.published
    first, second, later = ((START_MS + window, "192.0.2.1") for window in (0, 5_000, 25_000))
    # Batch 3 runs with the watermark 5,000 and emits, after counting its own record; batch 4's comes too late.
    assert prediction.emitted[3] == {first: 2}
    # Likewise batch 7 with 20,000.
    assert prediction.emitted[7] == {second: 3, (START_MS + 10_000, "192.0.2.1"): 1}
    assert prediction.dropped == {first: 1, second: 1}
    assert prediction.pending == {later: 1}


@pytest.mark.long
def test_records_are_parsed_as_the_query_parses_them(spark):
    ends = ["", "\n", "\r", "\r\n", "\n\n", "\x0b", " ", "\u2028"]
    times = ["0", "00017", "99999999999999", "100000000000000", "-5", "+5", " 5", "5.0", "", "٣"]
    ips = ["a,b", "a,", ",a", "-", "2001:db8::1", "ü"]
    texts = [f"5,a{end}" for end in ends] + [f"{time},a" for time in times] + [f"5,{ip}" for ip in ips]
    values = [*MALFORMED, b"5,\xff", *(text.encode() for text in texts)]
    schema = "partition int, offset long, value binary"
    records = spark.createDataFrame([(0, n, value) for n, value in enumerate(values)], schema)
    rows = ip_count.parse_records(records).selectExpr("offset", "unix_millis(event_time) time_ms", "ip").collect()
    parsed = {row.offset: (row.time_ms, row.ip) for row in rows}
    assert {n: parse_source_value(v) for n, v in enumerate(values)} == parsed


# What follows needs no Spark: checkpoints written by hand, of which the rules above leave one reading.


def checkpoint(*batches: Batch) -> Checkpoint:
    return Checkpoint(Path("by hand"), "id", batches)


def batch(n: int, start: int, end: int, watermark_ms: int, committed: bool = True, partition: int = 0) -> Batch:
    at = ("source", partition)
    return Batch(n, True, committed, start={at: start}, end={at: end}, watermark_ms=watermark_ms)


def one_per_offset(*times_ms: int | None):
    return [(0, offset, time_ms, None if time_ms is None else "a") for offset, time_ms in enumerate(times_ms)]


def test_records_outside_every_batch_are_unread():
    prediction = planned_results(checkpoint(batch(0, 1, 2, 0)), [*one_per_offset(1, 2, 3), (7, 0, 4, "a")])
    assert (prediction.unread, prediction.pending) == (3, {(0, "a"): 1})


def test_a_closing_record_is_not_counted_and_not_late():
    closing = [(0, 0, 50_000, "-"), (0, 1, 0, "-"), (0, 2, 0, "-")]
    prediction = planned_results(checkpoint(batch(0, 0, 1, 0), batch(1, 1, 2, 45_000), batch(2, 2, 3, 45_000)), closing)
    assert (prediction.pending, prediction.dropped) == ({}, {})


def test_a_partition_that_appears_later_is_read_from_its_beginning():
    old, new = ("source", 0), ("source", 1)
    later = Batch(1, True, True, start={old: 1}, end={old: 1, new: 2}, watermark_ms=5_000)
    prediction = planned_results(checkpoint(batch(0, 0, 1, 0), later), [(0, 0, 1, "a"), (1, 0, 1, "b"), (1, 1, 1, "b")])
    assert prediction.emitted == {0: {}, 1: {(0, "a"): 1, (0, "b"): 2}}


def test_where_spark_has_deleted_the_first_batches_the_others_are_still_exact():
    batches = [batch(n, n, n + 1, 5_000 * n) for n in range(6)]
    records = one_per_offset(9_000, 14_000, 3_000, 4_000, 24_000, 9_000)
    whole, remaining = (
        planned_results(checkpoint(*batches), records),
        planned_results(checkpoint(*batches[2:]), records),
    )
    assert set(remaining.emitted) == {3, 4, 5}
    assert remaining.emitted == {n: whole.emitted[n] for n in (3, 4, 5)}
    assert whole.emitted[3] == {(10_000, "a"): 1}
    assert remaining.dropped == {(0, "a"): 1, (5_000, "a"): 1}
    assert remaining.pending == whole.pending


def test_a_batch_of_unknown_extent_is_refused():
    with pytest.raises(CheckpointError, match="the offsets of batch 1 are not known"):
        planned_results(checkpoint(batch(0, 0, 1, 0), Batch(1, False, True)), [])


def test_a_source_that_is_no_topic_is_refused():
    with pytest.raises(CheckpointError, match="one Kafka topic"):
        planned_results(checkpoint(Batch(0, True, True, sources=('{"logOffset":0}',))), [])


def test_no_batch_has_read_nothing():
    assert planned_results(checkpoint(), one_per_offset(1, 2)).unread == 2
