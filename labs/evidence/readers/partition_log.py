"""The log of a partition as it lies on the broker's disk, with what no consumer is shown.

That is the producer id, epoch and sequence number of each record, and the control records that end a transaction.
Kafka's own tool (`kafka-dump-log`) reads the files. Where it stops: only of a broker that the lab started, and a
value is shown up to its first line break.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pandas

from labs.equipment.broker import AnyBroker, BrokerError, ExternalBroker
from labs.equipment.kafka_tool import run_kafka_tool
from labs.evidence.readers.transactions import NoSuchPartition

DUMP = "org.apache.kafka.tools.DumpLogSegments"
RECORD = re.compile(
    r"\| offset: (?P<offset>\d+) .*?\bsequence: (?P<sequence>-?\d+) headerKeys: \[.*?\]"
    r"(?: endTxnMarker: (?P<marker>\w+).*)?(?: key: (?P<key>.*?))?(?: payload: (?P<value>.*))?"
)


@dataclass(frozen=True)
class LogEntry:
    """A record of the log. `batch` is the first offset of the record batch that it came in.

    -1 is Kafka's word for none: a producer without idempotence has no id, epoch and sequence numbers, and a
    control record has no sequence number. `status` is "no transaction", "committed", "aborted" or "open" for a
    record, "commit marker" or "abort marker" for a control record.
    """

    offset: int
    batch: int
    producer_id: int
    epoch: int
    sequence: int
    status: str
    key: str | None
    value: str | None

    @property
    def is_control(self) -> bool:
        """Tell whether this only ends a transaction. It takes an offset, and consumers are not shown it."""
        return self.status.endswith(" marker")


def read_log(broker: AnyBroker, topic: str, partition: int = 0) -> list[LogEntry]:
    """Return what the partition's log holds, by offset. Raises BrokerError, NoSuchPartition.

    The broker may be running or stopped. Of several copies the longest is read.
    """
    if isinstance(broker, ExternalBroker):
        raise BrokerError(
            f"the log of {topic}-{partition} lies on the disk of a Kafka that the lab did not start "
            f"({broker.bootstrap_servers}); unset KAFKA_BOOTSTRAP_SERVERS to get a broker whose files can be read"
        )
    copies = [node.directory / "data" / f"{topic}-{partition}" for node in broker.nodes]
    copies = [copy for copy in copies if copy.is_dir()]
    if not copies:
        raise NoSuchPartition(f"no broker has a log of partition {partition} of topic {topic!r} in its directory")
    segments = max(map(_segments, copies), key=lambda files: sum(file.stat().st_size for file in files))
    return _decided(list(_entries(dump_segments(segments))))


def dump_log(broker: AnyBroker, topic: str, partition: int = 0) -> pandas.DataFrame:
    """Return the partition's log as a table, one row per record, control records included. Raises as `read_log`."""
    columns = ("offset", "batch", "producer_id", "epoch", "sequence", "status", "key", "value")
    entries = [
        replace(entry, key=entry.key or "", value=entry.value or "") for entry in read_log(broker, topic, partition)
    ]
    cells = [[getattr(entry, column) for column in columns] for entry in entries]
    table = pandas.DataFrame(cells, columns=[column.replace("_", " ") for column in columns])
    return table.set_index("offset")


def _segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def dump_segments(segments: list[Path], *options: str) -> str:
    """Return what Kafka's tool prints of these files of one directory. Raises BrokerError."""
    directory, names = segments[0].parent, ",".join(segment.name for segment in segments)
    # By name, in the directory: the tool splits a path at commas.
    ran = run_kafka_tool(DUMP, "--print-data-log", *options, "--files", names, cwd=directory)
    if ran.returncode:
        raise BrokerError(f"the log in {directory} cannot be read:\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def _entries(dump: str) -> Iterator[LogEntry]:
    """Yield the entries that the tool printed: a line for each batch, and one for each record in it."""
    batch: dict[str, str] = {}
    for line in dump.split("\n"):  # splitlines knows other line ends too, which a value may hold
        if line.startswith("baseOffset: "):
            batch = dict(re.findall(r"(\w+): (\S+)", line))
        elif record := RECORD.fullmatch(line):
            status = "open" if batch["isTransactional"] == "true" else "no transaction"
            yield LogEntry(
                offset=int(record["offset"]),
                batch=int(batch["baseOffset"]),
                producer_id=int(batch["producerId"]),
                epoch=int(batch["producerEpoch"]),
                sequence=int(record["sequence"]),
                status=f"{record['marker'].lower()} marker" if record["marker"] else status,
                key=record["key"],
                value=record["value"],
            )


def _decided(entries: list[LogEntry]) -> list[LogEntry]:
    """Say of each transaction's records what its control record says, which is the next one of that producer."""
    outcome: dict[int, str] = {}
    for number, entry in reversed(list(enumerate(entries))):
        if entry.is_control:
            outcome[entry.producer_id] = "committed" if entry.status == "commit marker" else "aborted"
        elif entry.status == "open" and entry.producer_id in outcome:
            entries[number] = replace(entry, status=outcome[entry.producer_id])
    return entries
