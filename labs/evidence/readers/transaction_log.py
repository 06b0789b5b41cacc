"""The transaction log: what the coordinator has noted of a transactional id, step by step, on the broker's disk.

It is the topic `__transaction_state`. Kafka's own tool reads the files. Where it stops: only of a broker that the lab
started, and only what was not compacted yet.
"""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass

import pandas

from labs.equipment.broker import AnyBroker, BrokerError, ExternalBroker
from labs.evidence.readers.partition_log import dump_segments

TOPIC = "__transaction_state"
# Kafka's numbers for the states, in TransactionState.
STATES = (
    *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort"),
    *("CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"),
)
ENTRY = re.compile(r'\| offset: \d+ .*? key: (\{"type":"0".*?\}\}) payload: (\{.*\})')


@dataclass(frozen=True)
class Noted:
    """One entry of the transaction log. `partitions` are those that the transaction has written to."""

    producer_id: int
    epoch: int
    state: str
    partitions: tuple[str, ...]


def read_transaction_log(broker: AnyBroker, transactional_id: str) -> list[Noted]:
    """Return what the coordinator has noted of this id, oldest first. Raises BrokerError."""
    if isinstance(broker, ExternalBroker):
        raise BrokerError(
            f"the transaction log lies on the disk of a Kafka that the lab did not start ({broker.bootstrap_servers}); "
            "unset KAFKA_BOOTSTRAP_SERVERS to get a broker whose files can be read"
        )
    data = [node.directory / "data" for node in broker.nodes]
    partitions = {each.name for directory in data for each in directory.glob(f"{TOPIC}-*")}
    if not partitions:
        return []  # nobody has asked for a transactional id yet
    name = f"{TOPIC}-{partition_of(transactional_id, len(partitions))}"
    copies = [segments for directory in data if (segments := sorted((directory / name).glob("*.log")))]
    dumps = [dump_segments(segments, "--transaction-log-decoder") for segments in copies]
    return max((_notes(dump, transactional_id) for dump in dumps), key=len, default=[])


def partition_of(transactional_id: str, partitions: int) -> int:
    """Return the partition whose leader is this id's coordinator: Java's hash of the id, modulo their number."""
    number, text = 0, transactional_id.encode("utf-16-le")
    for unit in struct.unpack(f"<{len(text) // 2}H", text):
        number = (31 * number + unit) & 0xFFFFFFFF
    signed = number - (1 << 32) if number >= 1 << 31 else number
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions


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
