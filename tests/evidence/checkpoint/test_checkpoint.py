import json
import shutil
import subprocess
import sys
import uuid
from datetime import UTC, datetime
from html import escape
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from labs.equipment.topics import create_topic
from labs.evidence.checkpoint.checkpoint import CheckpointError, ranges, read_checkpoint
from labs.pipeline.log.generate import START_MS, classroom
from labs.pipeline.log.replay import close_windows, replay
from labs.pipeline.query import ip_count
from labs.pipeline.records import CLOSING_DELAY_MS

IN_FLIGHT = 3
QUERY = "9f6a4d0e-0000-0000-0000-000000000000"


@pytest.fixture(scope="module")
def source(broker):
    """Two partitions: three windows, in each of which eight IPs come ten times."""
    name = create_topic(broker.bootstrap_servers, f"test-{uuid.uuid4().hex}", 2)
    sent = replay(classroom(windows=3), broker.bootstrap_servers, name)
    close_windows(sent.last_time_ms, broker.bootstrap_servers, name)
    return name


@pytest.fixture(scope="module")
def start(spark, broker, source):
    """Return a function that starts the query; its sink remembers rows per batch and fails after batch `crash`."""

    def start(checkpoint, crash: int | None = None, published=None, **options):
        def sink(rows, batch_id: int) -> None:
            if published is not None:
                published[batch_id] = rows.collect()
            else:
                rows.write.format("noop").mode("overwrite").save()
            if batch_id == crash:
                raise RuntimeError("the crash")

        options = {"topic": source, "records_per_batch": 60, **options}
        records = ip_count.read_source(spark, broker.bootstrap_servers, **options)
        return ip_count.start_query(ip_count.count_ips(records), sink, str(checkpoint))

    return start


@pytest.fixture(scope="module")
def crashed(start, tmp_path_factory):
    """The checkpoint of a query that crashed in batch 3, and the query's id."""
    directory = tmp_path_factory.mktemp("crashed") / "checkpoint"
    query = start(directory, crash=IN_FLIGHT)
    with pytest.raises(StreamingQueryException, match="the crash"):
        query.awaitTermination()
    return directory, query.id


@pytest.fixture
def copy(crashed, tmp_path):
    """A copy of that checkpoint, to be damaged."""
    return shutil.copytree(crashed[0], tmp_path / "copy")


def put(file, text: str | None) -> None:
    """Write the file, or with None delete it, as if its checksum had never been there."""
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    file.unlink(missing_ok=True)
    if text is not None:
        file.write_text(text)


def cut(file, characters: int) -> None:
    put(file, file.read_text()[:characters])


def last_committed(checkpoint: Path) -> int:
    batch = read_checkpoint(checkpoint).last_committed
    assert batch is not None
    return batch.batch_id


@pytest.mark.long
def test_a_crashed_query_has_its_last_batch_in_flight(crashed):
    directory, query_id = crashed
    checkpoint = read_checkpoint(directory)
    assert checkpoint.query_id == query_id
    assert [batch.batch_id for batch in checkpoint.batches] == [0, 1, 2, 3]
    assert [batch.status for batch in checkpoint.batches] == ["committed", "committed", "committed", "in flight"]
    assert checkpoint.in_flight is checkpoint.batches[3]
    assert checkpoint.last_committed is checkpoint.batches[2]
    assert checkpoint.damage == ()
    assert checkpoint.summary == "Batch 3 is planned and not committed: a restart runs it again"


@pytest.mark.long
def test_each_batch_begins_where_the_one_before_it_ended(crashed, source):
    batches = read_checkpoint(crashed[0]).batches
    assert batches[0].start == {(source, 0): 0, (source, 1): 0}
    for before, batch in pairwise(batches):
        assert batch.start == before.end
    records = [batch.offsets or 0 for batch in batches]
    assert sum(batches[3].end.values()) == sum(records)
    assert all(58 <= number <= 60 for number in records)


@pytest.mark.long
def test_watermark_and_times_are_those_of_the_offset_log(crashed):
    batches = read_checkpoint(crashed[0]).batches
    assert [batch.watermark_ms for batch in batches[1:]] == [batch.next_watermark_ms for batch in batches[:3]]
    assert batches[0].watermark_ms == 0
    assert batches[3].watermark_ms is not None
    assert START_MS - 5_000 < batches[3].watermark_ms < START_MS + 10_000
    assert batches[3].next_watermark_ms is None
    planned = [batch.planned_at_ms for batch in batches if batch.planned_at_ms is not None]
    assert len(planned) == len(batches)
    assert planned == sorted(planned)
    assert abs(datetime.now(UTC).timestamp() - planned[0] / 1000) < 600


@pytest.mark.long
def test_a_batch_leaves_one_version_of_the_state_per_partition(crashed):
    checkpoint = read_checkpoint(crashed[0])
    assert checkpoint.partitions == {0: 2}
    # Batch 3 ran to its end before the crash: its state is there, and still it does not count.
    assert [batch.state for batch in checkpoint.batches] == [{0: (0, 1)}] * 4
    assert {(file.version, file.kind, file.store) for file in checkpoint.state} == {
        (version, "delta", "default") for version in (1, 2, 3, 4)
    }


@pytest.mark.long
def test_the_table_has_a_row_per_batch(crashed):
    table = read_checkpoint(crashed[0]).table()
    assert list(table.index) == [0, 1, 2, 3]
    assert list(table.status) == ["committed"] * 3 + ["in flight"]
    assert list(table.state) == ["2/2"] * 4
    assert table.watermark.isna().tolist() == [True, False, False, False]
    assert str(table.watermark.dt.tz) == "UTC"
    html = read_checkpoint(crashed[0])._repr_html_()
    assert "in flight" in html
    assert "a restart runs it again" in html


@pytest.mark.long
def test_a_query_that_starts_elsewhere_shows_where(start, source, tmp_path):
    offsets = json.dumps({source: {"0": 20, "1": 30}})
    start(tmp_path / "checkpoint", starting=offsets, records_per_batch=None).awaitTermination()
    first, last = read_checkpoint(tmp_path / "checkpoint").batches
    assert first.start == {(source, 0): 20, (source, 1): 30}
    assert ranges(first) == f"{source}-0: 20–{first.end[source, 0]}, {source}-1: 30–{first.end[source, 1]}"
    assert (last.start, last.offsets, ranges(last)) == (first.end, 0, "")


@pytest.mark.long
def test_files_that_spark_left_half_written_are_ignored(copy, crashed):
    (copy / "offsets" / ".4.2b1c.tmp").write_text("v1\n{")
    (copy / "commits" / ".3.2b1c.tmp").write_text("")
    (copy / "state" / "0" / "0" / ".5.delta.2b1c.tmp").write_text("")
    assert read_checkpoint(copy).table().equals(read_checkpoint(crashed[0]).table())
    assert [batch.status for batch in read_checkpoint(copy).batches][2:] == ["committed", "in flight"]
    assert read_checkpoint(copy).damage == ()


def test_html_shows_the_content_of_a_file_and_does_not_run_it(tmp_path):
    (tmp_path / "offsets").mkdir()
    put(tmp_path / "offsets" / "0", "<img src=x onerror=alert(1)>")
    put(tmp_path / "metadata", "<b>no JSON</b>")
    html = read_checkpoint(tmp_path)._repr_html_()
    assert "<img" not in html
    assert "<b>" not in html
    assert "&lt;img" in html


@pytest.mark.long
def test_a_job_that_reads_its_checkpoint_loads_only_the_standard_library_for_it():
    program = """
import sys
before = set(sys.modules)
import labs.evidence.checkpoint.checkpoint
print({name.partition(".")[0] for name in set(sys.modules) - before} - sys.stdlib_module_names)
"""
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "{'labs'}"


DAMAGES = {
    "empty plan": (lambda c: cut(c / "offsets/3", 0), "offsets/3 is empty"),
    "plan cut in its metadata": (lambda c: cut(c / "offsets/3", 60), "offsets/3 ends after line 2 of 3"),
    "plan cut in its offsets": (lambda c: cut(c / "offsets/3", -5), "offsets/3 holds JSON that does not parse"),
    "plan overwritten": (lambda c: put(c / "offsets/3", "hello"), "offsets/3 begins with 'hello'"),
    "empty plan of the batch before": (lambda c: cut(c / "offsets/2", 0), "offsets/2 is empty"),
    "no plan of the batch before": (lambda c: put(c / "offsets/2", None), "offsets/2 is missing"),
    "empty commit": (lambda c: cut(c / "commits/2", 0), "commits/2 is empty"),
    "commit cut": (lambda c: cut(c / "commits/2", 9), "commits/2 holds JSON that does not parse"),
    "commit without a plan": (lambda c: put(c / "commits/4", "v1\n{}"), "offsets/4 is missing"),
    "empty metadata": (lambda c: cut(c / "metadata", 0), "metadata is empty"),
    "no metadata": (lambda c: put(c / "metadata", None), "metadata is missing"),
}


@pytest.mark.long
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_that_stops_spark_is_named(copy, start, damage):
    do, named = DAMAGES[damage]
    do(copy)
    checkpoint = read_checkpoint(copy)
    assert checkpoint.summary.startswith(named)
    assert "Spark refuses to restart" in checkpoint.summary
    assert escape(named) in checkpoint._repr_html_()
    unknown = named.startswith(("offsets/3", "offsets/4"))
    assert checkpoint.in_flight is (None if unknown else checkpoint.batches[3])
    with pytest.raises(Exception, match=r".+"):
        start(copy).awaitTermination()


@pytest.mark.long
def test_damage_that_spark_does_not_meet_is_named_as_such(copy, start):
    cut(copy / "offsets" / "0", 0)
    cut(copy / "commits" / "0", 9)
    put(copy / "offsets" / "1", None)
    checkpoint = read_checkpoint(copy)
    assert [damage.partition(". ")[0] for damage in checkpoint.damage] == [
        "offsets/0 is empty",
        "offsets/1 is missing",
        "commits/0 holds JSON that does not parse: …'{\"next'",
    ]
    assert all(damage.endswith("Spark does not read it again") for damage in checkpoint.damage)
    assert [batch.status for batch in checkpoint.batches] == ["damaged", "damaged", "committed", "in flight"]
    assert checkpoint.summary == "Batch 3 is planned and not committed: a restart runs it again"
    start(copy).awaitTermination()
    assert last_committed(copy) > IN_FLIGHT


@pytest.mark.long
def test_a_commit_that_names_no_watermark_is_one_to_spark_too(copy, start):
    put(copy / "commits" / "2", "v1")
    assert read_checkpoint(copy).damage == ()
    assert last_committed(copy) == 2
    start(copy).awaitTermination()


@pytest.mark.long
def test_a_restart_forgets_the_empty_batch_that_it_owes(broker, topic, start, tmp_path):
    """A crash after the last records' commit and before the plan of the empty batch that publishes their windows."""
    name, checkpoint = topic(), tmp_path / "checkpoint"
    sent = replay(classroom(windows=1), broker.bootstrap_servers, name)
    closed = close_windows(sent.last_time_ms, broker.bootstrap_servers, name)

    def run() -> dict[int, int]:
        published: dict[int, list] = {}
        start(checkpoint, published=published, topic=name, records_per_batch=None).awaitTermination()
        return {batch_id: len(rows) for batch_id, rows in published.items()}

    assert run() == {0: 0, 1: 8}
    assert not read_checkpoint(checkpoint).owes_a_batch
    put(checkpoint / "commits" / "1", None)
    put(checkpoint / "offsets" / "1", None)
    owing = read_checkpoint(checkpoint)
    assert (owing.in_flight, owing.owes_a_batch) == (None, True)
    assert owing.summary == "Batch 0 moved the watermark: the next batch emits the final windows"
    assert run() == {}
    assert read_checkpoint(checkpoint).owes_a_batch
    # One more record is enough to make a batch, and that publishes them.
    close_windows(closed - CLOSING_DELAY_MS, broker.bootstrap_servers, name)
    assert run() == {1: 8}


@pytest.mark.long
def test_the_second_version_of_the_offset_log_is_read(spark, start, source, tmp_path):
    spark.conf.set("spark.sql.streaming.offsetLog.formatVersion", "2")
    try:
        start(tmp_path / "checkpoint", records_per_batch=None).awaitTermination()
    finally:
        spark.conf.unset("spark.sql.streaming.offsetLog.formatVersion")
    assert (tmp_path / "checkpoint" / "offsets" / "0").read_text().startswith("v2\n")
    first = read_checkpoint(tmp_path / "checkpoint").batches[0]
    assert first.start == {(source, 0): 0, (source, 1): 0}
    assert first.offsets == 242


# Directories made by hand.


def make(directory, files: dict[str, str]):
    for name, text in {"metadata": json.dumps({"id": QUERY}), **files}.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    return directory


PLAN = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n{"t":{"0":%d}}'


def test_a_checkpoint_before_its_first_batch_is_empty(tmp_path):
    checkpoint = read_checkpoint(make(tmp_path, {}))
    assert (checkpoint.query_id, checkpoint.batches, checkpoint.damage) == (QUERY, (), ())
    assert (checkpoint.last_committed, checkpoint.in_flight) == (None, None)
    assert len(checkpoint.table()) == 0
    assert "No batch is planned yet" in checkpoint._repr_html_()


def test_batches_that_spark_has_deleted_are_not_missed(tmp_path):
    files = {f"offsets/{n}": PLAN % (10 * n) for n in (7, 8, 9)} | {f"commits/{n}": "v1\n{}" for n in (6, 7, 8, 9)}
    checkpoint = read_checkpoint(make(tmp_path, files))
    assert [batch.batch_id for batch in checkpoint.batches] == [7, 8, 9]
    assert (checkpoint.damage, checkpoint.batches[0].start, checkpoint.batches[0].offsets) == ((), {}, None)
    assert ranges(checkpoint.batches[0]) == "t-0: ?–70"
    assert checkpoint.batches[1].offsets == 10


def test_sources_that_are_no_topics_are_shown_as_spark_writes_them(tmp_path):
    plan = 'v1\n{"batchWatermarkMs":0}\n{"logOffset":4}\n-'
    checkpoint = read_checkpoint(make(tmp_path, {"offsets/0": plan, "sources/0/0": "v1\n0"}))
    assert (checkpoint.damage, checkpoint.batches[0].sources) == ((), ('{"logOffset":4}', None))
    assert (checkpoint.batches[0].end, checkpoint.batches[0].offsets) == ({}, None)
    assert ranges(checkpoint.batches[0]) == '{"logOffset":4}'


@pytest.mark.parametrize(
    ("name", "operator", "partition", "store", "version", "kind"),
    [
        ("0/1/7.delta", 0, 1, "default", 7, "delta"),
        ("0/1/7.snapshot", 0, 1, "default", 7, "snapshot"),
        ("2/0/12.changelog", 2, 0, "default", 12, "changelog"),
        ("0/0/3_4f08f5a7-571a-4c36-ba7b-6137274f96b2.zip", 0, 0, "default", 3, "zip"),
        ("1/0/left-keyToNumValues/4.delta", 1, 0, "left-keyToNumValues", 4, "delta"),
    ],
)
def test_every_layout_of_a_state_store_is_known(tmp_path, name, operator, partition, store, version, kind):
    others = ["0/0/_metadata/schema", "0/_metadata/metadata", "0/0/.7.delta.crc", "0/0/SSTs/000008-12.sst"]
    make(tmp_path, {f"state/{file}": "" for file in (name, *others)})
    [file] = read_checkpoint(tmp_path).state
    assert (file.operator, file.partition, file.store, file.version, file.kind) == (
        operator,
        partition,
        store,
        version,
        kind,
    )


def test_a_state_written_in_part_is_seen(tmp_path):
    make(tmp_path, {f"offsets/{n}": PLAN % n for n in (0, 1)} | {"commits/0": "v1\n{}"})
    for name in ("0/0/1.delta", "0/1/1.delta", "0/1/2.delta"):
        make(tmp_path, {f"state/{name}": ""})
    checkpoint = read_checkpoint(tmp_path)
    assert [batch.state for batch in checkpoint.batches] == [{0: (0, 1)}, {0: (1,)}]
    assert list(checkpoint.table().state) == ["2/2", "1/2"]


def test_a_path_as_spark_writes_it_is_read(tmp_path):
    directory = make(tmp_path / "a checkpoint", {})
    assert read_checkpoint(directory.as_uri()).path == directory


def test_a_newer_log_version_is_refused(tmp_path):
    make(tmp_path, {"offsets/0": "v3\n{}\n{}"})
    with pytest.raises(CheckpointError, match=r"offsets/0 has log version v3; this reader knows v1 and v2"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("nowhere", "nowhere is not there; expected the checkpointLocation of a query"),
        ("empty", "empty is no Spark checkpoint: it holds nothing; expected"),
        ("foreign", r"foreign is no Spark checkpoint: it holds part-0, readme; expected"),
        ("foreign/readme", "readme is a file; expected"),
        ("real/offsets", r"real/offsets is a part of a checkpoint; read .*/real$"),
    ],
)
def test_what_is_no_checkpoint_is_refused(tmp_path, path, said):
    (tmp_path / "empty").mkdir()
    make(tmp_path / "foreign", {"readme": "", "part-0": ""})
    (tmp_path / "foreign" / "metadata").unlink()
    make(tmp_path / "real", {"offsets/0": PLAN % 1})
    with pytest.raises(CheckpointError, match=said):
        read_checkpoint(tmp_path / path)


def test_a_remote_checkpoint_is_refused():
    with pytest.raises(CheckpointError, match="hdfs://namenode/checkpoint is not on this machine"):
        read_checkpoint("hdfs://namenode/checkpoint")
