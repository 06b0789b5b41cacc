"""The position in a real checkpoint of Flink is moved: what is counted then differs by just as many requests."""

from __future__ import annotations

import struct

import pytest

from labs.engines.engine import Work
from labs.evidence.auditor.expected import count_by_window
from labs.judging.flink_checkpoint import move_position, positions, restore_from
from labs.pipeline.log.generate import Traffic

LOG = list(Traffic(requests=12_000, seed=7, rate=200.0, clients=20))


@pytest.mark.long
@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("moved", "anomaly"), [(-100, "OVERCOUNT"), (100, "UNDERCOUNT")])
def test_a_position_that_does_not_fit_the_state_makes_counts_wrong(moved, anomaly, broker, tmp_path):
    name = f"{anomaly.lower()}-job"
    work = Work(broker.bootstrap_servers, f"{name}-in", f"{name}-out", tmp_path / "a folder", name, partitions=2)
    found = restore_from(work, LOG, moved)
    assert (found.positions.keys(), sum(found.positions.values())) == ({0, 1}, 11_600)
    assert (found.moved_to, found.sent, found.counted) == (found.positions[0] + moved, 12_000, 12_000 - moved)
    # Position and state fit: the state has all counts of its windows from the log in front of the positions. Another
    # window may still be open, since Flink moves its watermark five times a second and not with each record.
    in_front = count_by_window(LOG[:11_600])
    open_windows = {start for start, _ in found.state}
    assert open_windows >= set(sorted({start for start, _ in in_front})[-2:])
    assert found.state == {key: count for key, count in in_front.items() if key[0] in open_windows}
    assert not found.audit.valid
    assert found.audit.lost == found.audit.duplicated == 0
    assert {each.name for each, number in found.audit.counts.items() if number} == {anomaly}


def test_only_the_position_of_that_topic_and_partition_is_read_and_moved(tmp_path):
    def split(topic, partition, offset):
        return struct.pack(f">H{len(topic)}siqq", len(topic), topic, partition, offset, -(2**63))

    before = b"\0state" + split(b"in", 0, 7) + split(b"in", 1, 8) + split(b"begin", 0, 9) + b"\0\2in\0\0\0\0coordinator"
    (tmp_path / "_metadata").write_bytes(before)
    assert positions(tmp_path, "in") == {0: 7, 1: 8}
    move_position(tmp_path, "in", 1, 300)
    assert positions(tmp_path, "in") == {0: 7, 1: 300}
    assert positions(tmp_path, "begin") == {0: 9}
    assert (tmp_path / "_metadata").read_bytes() == before.replace(split(b"in", 1, 8), split(b"in", 1, 300))
    with pytest.raises(KeyError, match="no position in partition 2 of in"):
        move_position(tmp_path, "in", 2, 0)
