"""The workload `copy`: the job writes every record's value unchanged, once, in the order of its source partition.

The order is judged within each partition of the sink topic: there, the records of one source partition must be in their
order. The job may write a record to any partition. Limitations: keys, headers and
timestamps are not judged, so a job may change them.
"""

from __future__ import annotations

from random import Random
from typing import Any

from labs.evidence.auditor.verdict import Anomaly, AnomalyTally, Audit
from labs.judging.workload import Input, Output, Reading, audit_names

LONGEST_FILLER = 200  # characters: records have different sizes


class Copy:
    """`records` records, spread evenly over the partitions. A name is (partition, number from 0)."""

    name = "copy"

    def __init__(self, records: int, partitions: int, seed: int):
        random, self.partitions = Random(seed), partitions
        self._numbers: dict[bytes, tuple[int, int]] = {}
        self.due: dict[tuple[int, int], int] = {}
        self._records = [self._record(index, random) for index in range(records)]
        self.inputs = list(self._records)
        self.closing = [self._close(partition) for partition in range(partitions)]
        self.aborted = [Input(each, b"aborted", f"{each},aborted".encode()) for each in range(partitions)]
        self.last = {self._numbers[record.value] for record in self.closing}

    def _record(self, index: int, random: Random) -> Input:
        number, partition = divmod(index, self.partitions)
        filler = "".join(random.choices("abcdefghij", k=random.randrange(LONGEST_FILLER)))
        return self._known(partition, number, index, f"{partition},{number},{filler}")

    def _close(self, partition: int) -> Input:
        number = sum(record.partition == partition for record in self._records)
        return self._known(partition, number, len(self._records) + partition, f"{partition},{number},end")

    def _known(self, partition: int, number: int, index: int, text: str) -> Input:
        record = Input(partition, f"{partition}-{number % 10}".encode(), text.encode())
        self._numbers[record.value], self.due[partition, number] = (partition, number), index
        return record

    def result_of(self, output: Output) -> tuple[int, int] | None:
        """Return (source partition, number) of a record; None if its value is not one that was sent."""
        return self._numbers.get(output.value or b"")

    def audit(self, reading: Reading) -> Audit:
        """Judge what was read: each record once, and in order."""
        return audit_names(self.due, reading, self.result_of, _words, _judge_order, [Anomaly.NONMONOTONIC])


def _words(name: tuple[int, int]) -> str:
    return f"record {name[1]} of source partition {name[0]}"


def _judge_order(found: dict[Any, list[Output]], tally: AnomalyTally) -> None:
    """Report each record that is behind a later one; of several copies of a record, only the first is looked at."""
    first = {name: min(copies, key=lambda each: each.offset) for name, copies in found.items()}
    latest: dict[tuple[int, int], int] = {}  # (partition of the sink, source partition) -> the highest number
    for (source, number), output in sorted(first.items(), key=lambda item: (item[1].partition, item[1].offset)):
        before = latest.get((output.partition, source), -1)
        if number < before:
            sentence = "{} is behind record {}: {}"
            tally.add(Anomaly.NONMONOTONIC, sentence, _words((source, number)), before, output)
        latest[output.partition, source] = max(before, number)
