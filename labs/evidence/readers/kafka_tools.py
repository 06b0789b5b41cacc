"""What Kafka's own tools show: the log of a partition, the transaction log, and the offsets of a consumer group.

`kafka-dump-log` reads the logs from the broker's disk. They show what no consumer sees: the producer id, epoch and
sequence number of each record, and the control records that end a transaction. Limitations: the lab must have started
the broker whose logs are read, and a value is shown up to its first line break.

The transaction log is the topic `__transaction_state`. The coordinator writes each step of a transactional id into
it, and Kafka compacts it: old steps disappear.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pandas

from labs.equipment.broker import AnyBroker, BrokerError, ExternalBroker, run_kafka_tool
from labs.evidence.readers.transactions import NoSuchPartition, table_of
from labs.pipeline.two_phase.end_transaction import TRANSACTION_LOG, partition_of

DUMP = "org.apache.kafka.tools.DumpLogSegments"
RECORD = re.compile(
    r"\| offset: (?P<offset>\d+) .*?\bsequence: (?P<sequence>-?\d+) headerKeys: \[.*?\]"
    r"(?: endTxnMarker: (?P<marker>\w+).*)?(?: key: (?P<key>.*?))?(?: payload: (?P<value>.*))?"
)


@dataclass(frozen=True)
class LogEntry:
    """A record of the log. `batch` is the first offset of the record batch that it came in.

    Kafka writes -1 where there is no number: a producer without idempotence has no id, epoch and sequence numbers, and
    a control record has no sequence number. `status` is "no transaction", "committed", "aborted" or "open" for a
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
        """Tell whether this is a control record: it ends a transaction and takes an offset; consumers do not see it."""
        return self.status.endswith(" marker")


def read_log(broker: AnyBroker, topic: str, partition: int = 0) -> list[LogEntry]:
    """Return the entries of a partition's log, by offset. Raises BrokerError, NoSuchPartition.

    The broker may be running or stopped. If there are several replicas, the largest one is read.
    """
    copies = [_segments(data / f"{topic}-{partition}") for data in _data(broker, f"the log of {topic}-{partition}")]
    segments = max(copies, key=lambda files: sum(file.stat().st_size for file in files))
    if not segments:
        raise NoSuchPartition(f"no broker has a log of partition {partition} of topic {topic!r} in its directory")
    return _decided(list(_entries(dump_segments(segments))))


def dump_log(broker: AnyBroker, topic: str, partition: int = 0) -> pandas.DataFrame:
    """Return the partition's log as a table, one row per record, control records included. Raises as `read_log`."""
    columns = ("offset", "batch", "producer_id", "epoch", "sequence", "status", "key", "value")
    entries = [
        replace(entry, key=entry.key or "", value=entry.value or "") for entry in read_log(broker, topic, partition)
    ]
    return table_of(entries, columns).set_index("offset")


def _data(broker: AnyBroker, what: str) -> list[Path]:
    """Return the data directory of each node. Raises BrokerError for a Kafka that the lab did not start."""
    if isinstance(broker, ExternalBroker):
        raise BrokerError(
            f"{what} lies on the disk of a Kafka that the lab did not start ({broker.bootstrap_servers}); "
            "unset KAFKA_BOOTSTRAP_SERVERS to get a broker whose files can be read"
        )
    return [node.directory / "data" for node in broker.nodes]


def _segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def dump_segments(segments: list[Path], *options: str) -> str:
    """Return what Kafka's tool prints for these files, all of one directory. Raises BrokerError."""
    directory, names = segments[0].parent, ",".join(segment.name for segment in segments)
    # File names, with the directory as working directory: the tool splits a path at commas.
    ran = run_kafka_tool(DUMP, "--print-data-log", *options, "--files", names, cwd=directory)
    if ran.returncode:
        raise BrokerError(f"the log in {directory} cannot be read:\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def _entries(dump: str) -> Iterator[LogEntry]:
    """Yield the entries that the tool printed: a line for each batch, and one for each record in it."""
    batch: dict[str, str] = {}
    for line in dump.split("\n"):  # not splitlines(): it also splits at characters that a value may hold
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
    """Set each transactional record to committed or aborted, as its producer's next control record says."""
    outcome: dict[int, str] = {}
    for number, entry in reversed(list(enumerate(entries))):
        if entry.is_control:
            outcome[entry.producer_id] = "committed" if entry.status == "commit marker" else "aborted"
        elif entry.status == "open" and entry.producer_id in outcome:
            entries[number] = replace(entry, status=outcome[entry.producer_id])
    return entries


# Kafka's numbers for the states, in TransactionState.
STATES = (
    *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort"),
    *("CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"),
)
ENTRY = re.compile(r'\| offset: \d+ .*? key: (\{"type":"0".*?\}\}) payload: (\{.*\})')


@dataclass(frozen=True)
class Noted:
    """One entry of the transaction log. `partitions` are those that the transaction wrote to."""

    producer_id: int
    epoch: int
    state: str
    partitions: tuple[str, ...]


def read_transaction_log(broker: AnyBroker, transactional_id: str) -> list[Noted]:
    """Return what the coordinator has noted of this id, oldest first. Raises BrokerError."""
    data = _data(broker, "the transaction log")
    partitions = {each.name for directory in data for each in directory.glob(f"{TRANSACTION_LOG}-*")}
    if not partitions:
        return []  # no producer has used a transactional id yet
    name = f"{TRANSACTION_LOG}-{partition_of(transactional_id, len(partitions))}"
    copies = [segments for directory in data if (segments := _segments(directory / name))]
    dumps = [dump_segments(segments, "--transaction-log-decoder") for segments in copies]
    return max((_notes(dump, transactional_id) for dump in dumps), key=len, default=[])


def dump_transaction_log(broker: AnyBroker, transactional_id: str) -> pandas.DataFrame:
    """Return what the coordinator has noted of this id as a table, oldest first. Raises BrokerError."""
    notes = read_transaction_log(broker, transactional_id)
    cells = [[each.state, each.producer_id, each.epoch, ", ".join(each.partitions) or "-"] for each in notes]
    table = pandas.DataFrame(cells, columns=["state", "producer id", "epoch", "partitions"])
    return table.set_axis(pandas.RangeIndex(1, len(table) + 1, name="entry"))


def _notes(dump: str, transactional_id: str) -> list[Noted]:
    notes = []
    for key, payload in ENTRY.findall(dump):
        if json.loads(key)["data"]["transactionalId"] != transactional_id:
            continue
        data = json.loads(payload)["data"]
        partitions = tuple(
            f"{each['topic']}-{partition}"
            for each in data["transactionPartitions"] or ()
            for partition in each["partitionIds"]
        )
        notes.append(Noted(data["producerId"], data["producerEpoch"], STATES[data["transactionStatus"]], partitions))
    return notes


GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
COLUMNS = ("group", "topic", "partition", "current offset", "log end offset", "lag")


class GroupUnknown(LookupError):
    """Kafka has no such consumer group, or no committed offset of it."""


NO_OFFSET = "-"  # of a partition of which the group's members have committed none


def describe_group(bootstrap_servers: str, group: str) -> pandas.DataFrame:
    """Return what `kafka-consumer-groups --describe` shows, a row for each committed offset. Raises GroupUnknown.

    The columns for members are left out: a consumer that commits offsets without joining has none.
    """
    ran = run_kafka_tool(GROUPS, "--bootstrap-server", bootstrap_servers, "--describe", "--group", group, timeout=120)
    rows = [line.split()[: len(COLUMNS)] for line in ran.stdout.splitlines() if line.startswith(f"{group} ")]
    rows = [row for row in rows if NO_OFFSET not in row]
    if not rows:
        said = (ran.stderr or ran.stdout).strip().splitlines()[-1:] or ["the tool printed nothing"]
        raise GroupUnknown(f"group {group!r} has no committed offset: {said[0]}")
    numbers = {name: int for name in COLUMNS[2:]}
    return pandas.DataFrame(rows, columns=list(COLUMNS)).astype(numbers).set_index("group")
