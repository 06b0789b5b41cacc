"""The file sink: crashed at every point, killed, and refused where it must; and what the manifest is for."""

from __future__ import annotations

import errno
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from exactly_once_kafka.errors import BatchFailed, SinkRefused
from exactly_once_kafka.protocol import Batch
from labs.equipment.waiting import eventually
from labs.evidence.auditor.audit import audit
from labs.evidence.readers.other_readers import read_files
from labs.faults.fault_points import Fault, FaultPoints, InjectedCrash
from labs.pipeline.broken_protocols import marker_ignored
from labs.pipeline.sinks import file_sink
from labs.pipeline.sinks.file_sink import MANIFEST, Entry, FileSink, FileTransport, batches, read_entry
from labs.pipeline.sinks.file_sink import publish as publish_file
from tests.pipeline.sink_process import QUERY, batch, drained, values
from tests.pipeline.sink_runs import (
    POINTS_OF_A_WRITE,
    damage_checkpoint,
    expected,
    is_published_before,
    run,
    run_and_crash_at_every_point,
    write_in_a_process_killed_at,
)


@pytest.fixture
def points():
    return FaultPoints()


@pytest.fixture
def sink(tmp_path, points):
    return FileSink(tmp_path / "results", points=points)


def publish(sink, batch_id, count):
    """Do what a batch does, without a Spark."""
    drained(sink, batch(batch_id), values(batch_id, count))


class EntryFirst(FileSink):
    """The manifest names a file that is not there yet."""

    def transport(self, batch, values, execute):
        return CommitsFirst(self.directory, batch, values, execute, self.in_rows(batch))


class CommitsFirst(FileTransport):
    def rows(self):
        self._lines, file = list(self.values), f"batch-{self.batch.batch_id}-x.jsonl"
        entry = Entry(self.batch.batch_id, self.batch.query_id, "x", file, len(self._lines), "", self.batch.plan)
        publish_file(self._directory / MANIFEST / f"{self.batch.batch_id}.json", [json.dumps(asdict(entry))])
        return True

    def commit(self):
        file = f"batch-{self.batch.batch_id}-x.jsonl"
        publish_file(self._directory / file, [line + "\n" for line in self._lines])


class NeverLooks(FileSink):
    """Writes every batch, whether it was committed before or not."""

    protocol = staticmethod(marker_ignored)


def disturbed():
    raise RuntimeError("disturbed")
    yield


def read_every_file(directory):
    """A reader who does not know of the manifest."""
    return [line for file in directory.glob("*.jsonl") for line in file.read_text().splitlines()]


@pytest.mark.long
def test_query_crashed_at_every_point_neither_loses_nor_doubles(spark, broker, classroom_log, sink, points, tmp_path):
    run_and_crash_at_every_point(lambda: run(spark, broker, classroom_log, sink, tmp_path / "checkpoint"), points)
    verdict = audit(classroom_log.expected, read_files(sink.directory))
    assert verdict.valid, verdict
    assert len(read_every_file(sink.directory)) == len(classroom_log.expected)  # and the leftovers are gone
    assert len(list(sink.directory.rglob("*"))) == 2 * len(batches(sink.directory)) + 1


@pytest.mark.bench
@pytest.mark.parametrize("point", POINTS_OF_A_WRITE)
def test_process_killed_at_any_point_leaves_the_batch_whole_or_absent(sink, point):
    publish(sink, 0, count=1)
    write_in_a_process_killed_at(point, "file", sink.directory)
    published = is_published_before(point)
    assert audit(expected(1, 1) if published else expected(1), read_files(sink.directory)).valid
    # The replay computes something else: still, one version is visible, and no row of the other.
    publish(sink, 1, count=2)
    verdict = audit(expected(1, 1) if published else expected(1, 2), read_files(sink.directory))
    assert verdict.valid, verdict
    assert len(read_every_file(sink.directory)) == 6
    assert not [file for file in sink.directory.rglob(".*")]


@pytest.mark.bench
def test_half_a_file_is_under_no_name_that_a_reader_looks_for(sink):
    publish(sink, 0, count=1)
    write_in_a_process_killed_at("mid_rows", "file", sink.directory)
    [half] = sink.directory.glob(".*.tmp")
    assert len(half.read_text().splitlines()) == 1
    assert len(read_every_file(sink.directory)) == 3


@pytest.mark.bench
def test_reader_who_ignores_the_manifest_sees_what_a_crash_left_and_one_who_obeys_does_not(sink, points):
    publish(sink, 0, count=1)
    write_in_a_process_killed_at("before_commit", "file", sink.directory)
    with points.armed(Fault("after_commit", 1)), pytest.raises(InjectedCrash):
        publish(sink, 1, count=2)  # the replay, up to its commit
    assert len(read_every_file(sink.directory)) == 9
    assert audit(expected(1, 2), read_files(sink.directory)).valid


def test_mutant_that_publishes_the_entry_first_is_caught(tmp_path, points):
    sink = EntryFirst(tmp_path, points=points)
    with points.armed(Fault("before_commit", 0)), pytest.raises(InjectedCrash):
        publish(sink, 0, count=1)
    publish(sink, 0, count=1)
    with pytest.raises(FileNotFoundError):
        read_files(tmp_path)


def test_batch_that_is_written_again_is_refused_by_the_manifest_itself(tmp_path):
    sink = NeverLooks(tmp_path)
    publish(sink, 0, count=1)
    with pytest.raises(BatchFailed, match="another driver has published it"):
        publish(sink, 0, count=2)
    assert audit(expected(1), read_files(tmp_path)).valid


def test_of_two_drivers_with_the_same_batch_one_fails(sink, points):
    second = FileSink(sink.directory)

    class SecondComesIn:
        point, batch = "before_commit", 0

        def strike(self):
            publish(second, 0, count=2)

    with points.armed(SecondComesIn()), pytest.raises(BatchFailed, match="another driver"):
        publish(sink, 0, count=1)
    assert audit(expected(2), read_files(sink.directory)).valid


@pytest.mark.bench
@pytest.mark.parametrize("damage", ["checkpoint deleted", "rolled back two", "rolled back one", "results deleted"])
def test_checkpoint_and_results_that_do_not_fit_are_refused(
    spark, broker, classroom_log, sink, points, tmp_path, damage
):
    checkpoint = tmp_path / "checkpoint"

    def attempt(records_per_batch=500):
        run(spark, broker, classroom_log, sink, checkpoint, records_per_batch=records_per_batch)

    faults = [Fault("before_rows", 2)] if damage == "rolled back one" else []
    with points.armed(*faults), suppress(StreamingQueryException):
        attempt()
    found = damage_checkpoint(checkpoint, damage)
    if damage == "results deleted":
        shutil.rmtree(sink.directory)
        found = "no marker"
    before = sorted(sink.directory.rglob("*.json*"))
    with pytest.raises(StreamingQueryException, match=f"(?s)refuses batch.*{found}"):
        attempt(records_per_batch=450)
    assert sorted(sink.directory.rglob("*.json*")) == before


def test_another_batch_of_the_same_number_is_refused(sink):
    publish(sink, 0, count=1)
    with pytest.raises(SinkRefused, match=r"(?s)another batch 0.*as planned 0.*otherwise 0"):
        drained(sink, batch(0, plan="otherwise"), ())
    with pytest.raises(SinkRefused, match=r"(?s)another batch 0.*as planned 0.*otherwise 0"):
        drained(sink, batch(1, plan="otherwise"), ())


def test_manifest_of_another_query_is_refused(sink):
    publish(sink, 0, count=1)
    with pytest.raises(SinkRefused, match="another query"):
        drained(sink, batch(1, "another"), ())


@pytest.mark.parametrize("damage", [b"", b'{"window_start": 0, "ip": "10.0.0.0", "count": 1}\n', None])
def test_file_that_is_not_what_the_manifest_says_cannot_be_read(sink, damage):
    publish(sink, 0, count=1)
    file = sink.directory / read_entry(sink.directory, 0).file
    file.write_bytes(file.read_bytes().replace(b"1}", b"2}") if damage is None else damage)
    with pytest.raises(ValueError, match="differs from the manifest"):
        read_files(sink.directory)


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_manifest_without_an_entry_is_read_by_nobody_and_written_to_by_no_sink(sink, missing):
    for number in range(4):
        publish(sink, number, count=1)
    entry = sink.directory / MANIFEST / f"{missing}.json"
    entry.rename(sink.directory / "kept")
    with pytest.raises(ValueError, match=rf"has 3 entries, up to 3.json, and no {missing}.json"):
        read_files(sink.directory)
    with pytest.raises(SinkRefused, match=rf"refuses batch 4: .* no {missing}.json"):
        publish(sink, 4, count=1)
    (sink.directory / "kept").rename(entry)
    publish(sink, 4, count=1)
    assert audit(expected(*[1] * 5), read_files(sink.directory)).valid


def test_manifest_that_lost_its_last_entry_has_its_batch_written_again_or_refused(sink):
    publish(sink, 0, count=1)
    publish(sink, 1, count=1)
    (sink.directory / MANIFEST / "1.json").unlink()
    with pytest.raises(SinkRefused, match="the last batch committed is 0"):
        publish(sink, 2, count=1)
    publish(sink, 1, count=2)
    assert audit(expected(1, 2), read_files(sink.directory)).valid


@pytest.mark.parametrize(
    "damage",
    [
        lambda entry: "",
        lambda entry: json.dumps(entry)[:-9],
        lambda entry: "[]",
        lambda entry: json.dumps(entry | {"batch_id": 0}),
        lambda entry: json.dumps(entry | {"file": "../elsewhere.jsonl"}),
        lambda entry: json.dumps(entry | {"file": f"batch-0-{entry['attempt']}.jsonl"}),
        lambda entry: json.dumps({name: value for name, value in entry.items() if name != "rows"}),
        lambda entry: json.dumps({name: value for name, value in entry.items() if name != "plan"}),
    ],
)
def test_entry_that_was_edited_or_cut_is_read_by_nobody_and_followed_by_no_batch(sink, damage):
    publish(sink, 0, count=1)
    publish(sink, 1, count=1)
    file = sink.directory / MANIFEST / "1.json"
    file.write_text(damage(json.loads(file.read_text())))
    with pytest.raises(ValueError, match=r"1\.json is .*restore it"):
        read_files(sink.directory)
    with pytest.raises(SinkRefused, match=r"refuses batch 2: .*1\.json is .*restore it"):
        publish(sink, 2, count=1)


def test_manifest_with_entries_of_two_queries_is_read_by_nobody(sink):
    publish(sink, 0, count=1)
    publish(sink, 1, count=1)
    file = sink.directory / MANIFEST / "0.json"
    file.write_text(file.read_text().replace("the-query", "another"))
    with pytest.raises(ValueError, match="batch 1 is of another query"):
        read_files(sink.directory)


@pytest.mark.parametrize("name", ["01.json", "1x.json"])
def test_entry_that_no_sink_has_written_is_said_by_name(sink, name):
    publish(sink, 0, count=1)
    (sink.directory / MANIFEST / name).write_text("{}")
    with pytest.raises(ValueError, match=f"has {name}, which no sink has written"):
        read_files(sink.directory)


def test_leftovers_beside_the_manifest_are_no_entries(sink):
    publish(sink, 0, count=1)
    (sink.directory / MANIFEST / ".1.json.0123abcd.tmp").write_text("{")
    (sink.directory / "batch-1-0123abcd.jsonl").write_text("{}\n")
    assert audit(expected(1), read_files(sink.directory)).valid
    publish(sink, 1, count=1)
    assert audit(expected(1, 1), read_files(sink.directory)).valid
    assert not list(sink.directory.rglob("*abcd*"))


def test_directory_without_a_manifest_is_no_empty_result(tmp_path):
    with pytest.raises(FileNotFoundError, match="no _manifest"):
        read_files(tmp_path)
    with pytest.raises(RuntimeError, match="disturbed"):
        drained(FileSink(tmp_path), batch(0), disturbed())
    assert read_files(tmp_path) == []


def test_reader_sees_whole_batches_while_a_sink_writes(sink):
    with ThreadPoolExecutor() as pool:
        written = pool.submit(lambda: [publish(sink, number, count=1) for number in range(100)])
        eventually(lambda: (sink.directory / MANIFEST).is_dir())
        seen = [len(read_files(sink.directory))]
        while not written.done():
            seen.append(len(read_files(sink.directory)))
        written.result()
    assert seen == sorted(seen)
    assert {count % 3 for count in seen} == {0}


def test_value_with_a_line_break_is_refused(sink):
    with pytest.raises(ValueError, match="line break") as refusal:
        drained(sink, batch(0), ["one\ntwo"])
    assert isinstance(refusal.value, SinkRefused)
    assert read_every_file(sink.directory) == []


@pytest.mark.bench
def test_any_rows_with_a_value_column_will_do(spark, sink, publish_rows):
    publish_rows(sink, spark.range(25).selectExpr("string(id) as value"))
    assert sorted(map(int, read_every_file(sink.directory))) == list(range(25))


def test_directory_that_cannot_be_written_fails_the_batch(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BatchFailed, match=r"NotADirectory|FileExists"):
        drained(FileSink(tmp_path / "file"), batch(0), ())
    sink = FileSink(tmp_path / "sink")

    def moved_away():
        os.rename(sink.directory, tmp_path / "elsewhere")
        yield from values(0, 1)

    with pytest.raises(BatchFailed, match="FileNotFound"):
        drained(sink, batch(0), moved_away())


def planned(number: int, how: str, before: str) -> Batch:
    """Return a batch of this plan that follows one of another plan."""
    return Batch(QUERY, number, f"{how} {number}", f"{before} {number - 1}" if number else None)


@pytest.mark.parametrize("moment", ["before_rows", "before_commit"])
def test_driver_that_was_overtaken_by_other_plans_publishes_nothing(tmp_path, moment):
    """It has looked at the marker, and sleeps; meanwhile checkpoint and results are restored, and others go on."""
    directory = tmp_path / "results"
    first, other = FileSink(directory), FileSink(directory)
    for number in range(2):
        publish(first, number, count=1)
    saved = shutil.copytree(directory, tmp_path / "saved")
    publish(first, 2, count=1)

    def meanwhile(point: str, batch_id: int) -> None:
        if (point, batch_id) == (moment, 3):
            shutil.rmtree(directory)
            shutil.copytree(saved, directory)
            drained(other, planned(2, "otherwise", "as planned"), values(2, count=2))

    sleeper = FileSink(directory, points=meanwhile)
    with pytest.raises((SinkRefused, BatchFailed)):
        publish(sleeper, 3, count=1)
    assert batches(directory) == [0, 1, 2]


def test_sweep_leaves_the_files_of_others(sink):
    sink.directory.mkdir()
    (sink.directory / "batch-0-report.pdf").touch()
    (sink.directory / "batch-0-archive").mkdir()
    publish(sink, 0, count=1)
    assert {each.name for each in sink.directory.glob("batch-0-[ar]*")} >= {"batch-0-report.pdf", "batch-0-archive"}


def test_manifest_that_cannot_be_listed_is_no_empty_one(sink, monkeypatch):
    for number in range(2):
        publish(sink, number, count=1)

    def denied(*_):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr("os.listdir", denied)
        patch.setattr("os.scandir", denied)
        with pytest.raises(PermissionError):
            read_files(sink.directory)
        with pytest.raises(BatchFailed, match="PermissionError"):
            publish(sink, 2, count=1)
    publish(sink, 2, count=1)
    assert batches(sink.directory) == [0, 1, 2]


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
def test_file_system_without_hard_links_is_refused(sink, monkeypatch, code):
    def link(file, name):
        raise OSError(code, os.strerror(code), str(file), None, str(name))

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(SinkRefused, match="by a hard link, which this file system does not allow"):
        publish(sink, 0, 1)
    assert not batches(sink.directory)


def test_entry_whose_name_may_not_be_on_disk_is_synced_before_the_batch_is_noted(sink, monkeypatch):
    """The first driver is killed between the entry's name and its sync."""
    synced: list[Path] = []
    real = file_sink.sync_directory

    def dies(directory: Path) -> None:
        if directory.name == MANIFEST and (directory / "0.json").exists():
            raise InjectedCrash("killed")
        real(directory)

    with monkeypatch.context() as patch:
        patch.setattr(file_sink, "sync_directory", dies)
        with pytest.raises(InjectedCrash):
            publish(sink, 0, count=1)

    def noted(directory: Path) -> None:
        synced.append(directory)
        real(directory)

    monkeypatch.setattr(file_sink, "sync_directory", noted)
    publish(sink, 0, count=1)
    assert synced == [sink.directory / MANIFEST]


def test_place_that_is_not_mounted_is_not_blamed_on_another_driver(tmp_path):
    (tmp_path / "results").symlink_to(tmp_path / "not mounted" / "results")
    with pytest.raises(BatchFailed) as failed:
        drained(FileSink(tmp_path / "results"), batch(0), ())
    assert "another driver" not in str(failed.value)
