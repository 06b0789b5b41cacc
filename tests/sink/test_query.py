"""The plan of a batch is the same, whether the file that it is in is read or Spark is asked for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pytest

from exactly_once_kafka.errors import SinkRefused
from exactly_once_kafka.query import CheckpointFailed, CheckpointNote, RunningQuery, file_of
from labs.pipeline.sinks.file_sink import FileSink


def test_rows_of_spark_connect_are_refused(tmp_path):
    rows = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})()
    with pytest.raises(SinkRefused, match="refuses batch 0: the rows are those of Spark Connect"):
        FileSink(tmp_path)(rows, 0)


@pytest.mark.bench
def test_plans_from_the_file_and_from_the_log_are_alike(copy, tmp_path):
    copy.checkpoint = tmp_path / "50 %41 größer"
    plans = []

    def look(rows, batch_id):
        query = RunningQuery(rows)
        plans.append((query._from_file(batch_id), query._from_log(batch_id)))

    copy(look)
    assert len(plans) == 3
    for from_file, from_log in plans:
        assert from_file == from_log


@pytest.mark.bench
def test_plan_of_a_checkpoint_elsewhere_is_asked_of_spark(copy):
    plans = []

    def look(rows, batch_id):
        here, elsewhere, gone = RunningQuery(rows), RunningQuery(rows), RunningQuery(rows)
        elsewhere._files, gone._files = None, copy.checkpoint / "another place"
        plans.append({query.plan(batch_id) for query in (here, elsewhere, gone)})

    copy(look)
    assert [len(each) for each in plans] == [1, 1, 1]


def test_note_of_a_name_with_a_dot_in_front_is_no_unfinished_note():
    assert file_of(".orders") == "%2Eorders"
    assert unquote(file_of(".orders")) == ".orders"
    assert file_of("orders.eu") == "orders.eu"


def test_note_that_a_file_system_does_not_rename_is_not_taken_for_written():
    note: Any = CheckpointNote.__new__(CheckpointNote)
    stream = SimpleNamespace(write=len, hsync=list, close=list)
    note._files = SimpleNamespace(create=lambda path, overwrite: stream, rename=lambda source, target: False)
    note._unfinished, note._path = ".unfinished", "note"
    with pytest.raises(CheckpointFailed, match="could not be renamed"):
        note.write("place")
