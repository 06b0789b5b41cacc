"""Reads and changes a checkpoint of Flink: its `_metadata` has the position in each partition and the open windows.

`restore_from` kills Flink after a checkpoint that includes all records sent so far. It replaces the position in
partition 0 by an older or a newer one, leaves the state (the counts of the open windows) as it is, and restarts Flink.
Limitations: Flink keeps a state larger than 20 KB in files beside `_metadata`, which are not read here.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from labs.engines.engine import Work
from labs.engines.flink import FlinkEngine, latest_checkpoint
from labs.evidence.auditor.audit import Audit, audit
from labs.evidence.auditor.expected import count_by_window
from labs.evidence.auditor.observed import Key
from labs.evidence.readers.results import read_results
from labs.judging.engine_session import EngineSession, Standstill
from labs.pipeline.log.access_log import Access
from labs.pipeline.records import WINDOW_MS

# How Flink's KafkaPartitionSplitSerializer writes one partition: topic (its length first), partition, the offset of the
# next record, and the offset at which to stop, which in a stream is the smallest of all numbers.
NEXT = struct.Struct(">iq")
NEVER = struct.pack(">q", -(2**63))
# How its state writes one count: the end of the window; a row with the IP (its length first, zeros up to a multiple of
# eight bytes last); a row with the count. A row begins with its size and eight zeros.
COUNT = re.compile(rb"(.{8})\0{3}.\0{8}.\0{3}\x10\0{3}([0-9a-f.:]+)\0{3,}\x10\0{8}(.{8})", re.DOTALL)


class Restored(NamedTuple):
    """A checkpoint of Flink, and what Flink counted from it after the position in partition 0 was moved.

    `positions` maps each partition to the offset of the next record. `state` has the counts of the open windows.
    `moved_to` is the new position in partition 0. `sent` and `counted` are numbers of requests.
    """

    positions: dict[int, int]
    state: dict[Key, int]
    moved_to: int
    sent: int
    counted: int
    audit: Audit

    @property
    def difference(self) -> int:
        """How many requests were counted too often, or (negative) not at all."""
        return self.counted - self.sent


def positions(checkpoint: Path, topic: str) -> dict[int, int]:
    """Return partition -> offset of the next record, as a checkpoint (a folder `chk-N`) has them."""
    return {partition: offset for _, partition, offset in _splits((checkpoint / "_metadata").read_bytes(), topic)}


def counts(checkpoint: Path) -> dict[Key, int]:
    """Return (start of the window, IP) -> count of the windows that are open, as the state of a checkpoint has them."""
    return {
        (int.from_bytes(end, "big") - WINDOW_MS, ip.decode()): int.from_bytes(count, "little")
        for end, ip, count in COUNT.findall((checkpoint / "_metadata").read_bytes())
    }


def move_position(checkpoint: Path, topic: str, partition: int, offset: int) -> None:
    """Replace the offset of the next record in a checkpoint. Raises KeyError if it has none for this partition."""
    file = checkpoint / "_metadata"
    metadata = bytearray(file.read_bytes())
    places = [at for at, found, _ in _splits(bytes(metadata), topic) if found == partition]
    if not places:
        raise KeyError(f"{file} has no position in partition {partition} of {topic}")
    for at in places:
        NEXT.pack_into(metadata, at, partition, offset)
    file.write_bytes(metadata)


def _splits(metadata: bytes, topic: str) -> list[tuple[int, int, int]]:
    """Return (place in the metadata, partition, offset of the next record) of each partition that is read."""
    name = topic.encode()
    start, found, at = struct.pack(">H", len(name)) + name, [], -1
    while (at := metadata.find(start, at + 1)) >= 0:
        place = at + len(start)
        if metadata[place + NEXT.size :].startswith(NEVER):
            found.append((place, *NEXT.unpack_from(metadata, place)))
    return found


def restore_from(work: Work, log: Sequence[Access], moved: int, unread: int = 400) -> Restored:
    """Count all but the last `unread` accesses, kill Flink, move its position, restart it, and count to the end.

    The position in partition 0 of the latest checkpoint is moved by `moved` records; a negative number moves it back.
    Raises NotInstalled, EngineStopped.
    """
    session, read = EngineSession(FlinkEngine(), work, partitions=work.partitions), len(log) - unread
    try:
        session.start()
        session.send(log[:read])
        standstill, stored = Standstill("Flink's checkpoint has nothing"), 0
        while stored < read:
            session.tick()
            checkpoint = latest_checkpoint(work.directory / "checkpoints")
            with suppress(FileNotFoundError):  # Flink deletes a checkpoint when it has a newer one
                stored = sum(positions(checkpoint, work.source_topic).values()) if checkpoint else 0
            standstill.look(stored, f": it is at {stored:,} of {read:,}")
        session.kill()
        checkpoint = latest_checkpoint(work.directory / "checkpoints")
        assert checkpoint, "was read before"
        at, state = positions(checkpoint, work.source_topic), counts(checkpoint)
        move_position(checkpoint, work.source_topic, 0, at[0] + moved)
        session.send(log[read:])
        session.start()
        session.close_windows(log)
        expected = count_by_window(log)
        session.wait_for_these(expected)
    finally:
        session.close()
    results = read_results(work.bootstrap_servers, work.sink_topic)
    counted = sum(result.count for result in results)
    return Restored(at, state, at[0] + moved, len(log), counted, audit(expected, results))
