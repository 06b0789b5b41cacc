"""The spool between Spark and the sink: in order, bounded in memory, and without a trace on the disk."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
from pathlib import Path

import pyarrow
import pytest

from exactly_once_kafka.arrow_rows import Closed, Spool

ROWS = 1000  # of 8 bytes


def batch(number: int) -> pyarrow.RecordBatch:
    return pyarrow.record_batch({"value": pyarrow.array([number] * ROWS, pyarrow.int64())})


def numbers(batches) -> list[int]:
    return [each.column(0)[0].as_py() for each in batches]


def open_files_without_a_name() -> set[str]:
    """Return the deleted files in the temporary directory that this process still has open."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the one that lists them
            found.add(os.readlink(link))
    return {link for link in found if link.startswith(tempfile.gettempdir()) and link.endswith("(deleted)")}


def test_batches_come_out_in_order_whether_they_went_through_memory_or_the_file():
    spool = Spool(in_memory=3 * 8 * ROWS)
    for number in range(5):  # 0 to 2 in memory, 3 and 4 in the file
        spool.put(batch(number))
    out = iter(spool)
    taken = [next(out), next(out)]
    for number in range(5, 9):  # there is room in memory again, for 5 and 6
        spool.put(batch(number))
    spool.finish()
    assert numbers([*taken, *out]) == list(range(9))
    assert spool.spilled > 4 * 8 * ROWS


def test_what_fits_in_memory_never_touches_the_disk(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    spool = Spool(in_memory=10 * 8 * ROWS)
    for number in range(10):
        spool.put(batch(number))
    spool.finish()
    assert numbers(spool) == list(range(10))


def test_one_batch_larger_than_the_bound_passes_through_memory():
    spool = Spool(in_memory=10)
    spool.put(batch(1))
    spool.finish()
    assert numbers(spool) == [1]
    assert spool.spilled == 0


def test_room_in_the_file_is_used_anew_once_all_of_it_was_read():
    spool = Spool(in_memory=10)
    out = iter(spool)
    for number in range(20):
        spool.put(batch(number))  # in memory, since nothing waits before it
        spool.put(batch(number))  # in the file
        assert numbers([next(out), next(out)]) == [number, number]
    assert spool.spilled > 20 * 8 * ROWS
    assert spool.end_of_file < 3 * 8 * ROWS


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_file_is_gone_when_the_spool_is_closed():
    before, spool = open_files_without_a_name(), Spool(in_memory=10)
    spool.put(batch(0))
    spool.put(batch(1))
    assert len(open_files_without_a_name() - before) == 1
    spool.close()
    assert open_files_without_a_name() == before


def test_a_reader_waits_for_what_is_still_to_come():
    spool, taken = Spool(), []
    reader = threading.Thread(target=lambda: taken.extend(numbers(spool)))
    reader.start()
    spool.put(batch(7))
    spool.finish()
    reader.join(10)
    assert taken == [7]


def test_a_writer_learns_that_nobody_reads_any_more():
    spool = Spool()
    spool.close()
    with pytest.raises(Closed):
        spool.put(batch(0))


def test_a_full_disk_is_told_to_the_reader_and_stops_the_writer(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    spool = Spool(in_memory=10)
    spool.put(batch(0))
    with pytest.raises(Closed):
        spool.put(batch(1))
    with pytest.raises(OSError, match="nowhere"):
        numbers(spool)
