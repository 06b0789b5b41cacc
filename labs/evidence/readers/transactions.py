"""What the brokers know of transactions: which are open, and how far committed reads go.

The answers come through Kafka's admin client, so any Kafka can be read, also one that the lab did not start.
Limitations: a broker that was just started lists no transactions until it has loaded its own log of them.

`transaction_table` and `end_table` are for lessons.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from kafka import IsolationLevel, KafkaAdminClient, OffsetSpec, TopicPartition

from labs.equipment.topics import admin
from labs.equipment.waiting import eventually

if TYPE_CHECKING:
    import pandas

FINISHED = ("Empty", "CompleteCommit", "CompleteAbort", "Dead")
Answer = TypeVar("Answer")


class NoSuchPartition(LookupError):
    """Kafka has no such topic, or the topic no such partition."""


@dataclass(frozen=True)
class Transaction:
    """The latest transaction of a transactional id. `state` is Kafka's own name."""

    transactional_id: str
    producer_id: int
    epoch: int
    state: str
    partitions: tuple[tuple[str, int], ...]  # that it has written to; none once it is finished

    @property
    def open(self) -> bool:
        """Tell whether it is neither committed nor aborted yet."""
        return self.state not in FINISHED

    @property
    def ending(self) -> bool:
        """Tell whether its end is decided, and not every partition has been told yet."""
        return self.state.startswith("Prepare")


@dataclass(frozen=True)
class PartitionEnd:
    """Where a partition ends for read_committed consumers (last stable offset) and for all others (log end)."""

    partition: int
    last_stable_offset: int
    log_end: int

    @property
    def hidden(self) -> int:
        """The number of offsets that read_committed consumers cannot read yet."""
        return self.log_end - self.last_stable_offset


def read_transactions(bootstrap_servers: str) -> list[Transaction]:
    """Return the latest transaction of each transactional id. Raises KafkaUnreachable, TimeoutError."""

    def ask(client: KafkaAdminClient) -> list[Transaction]:
        listed = {each.transactional_id for broker in client.list_transactions().values() for each in broker}
        return [
            Transaction(
                transactional_id=name,
                producer_id=described.producer_id,
                epoch=described.producer_epoch,
                state=described.state.value,
                partitions=tuple(sorted(map(tuple, described.topic_partitions))),
            )
            for name, described in sorted(client.describe_transactions(listed).items())
        ]

    with admin(bootstrap_servers) as client:
        return _answer(lambda: ask(client))


def settle(bootstrap_servers: str, topic: str | None = None, timeout: float = 90) -> None:
    """Wait until commits and aborts are visible: Kafka answers them before every partition has them.

    With `topic`, only transactions that wrote to this topic are waited for. The default timeout is long because a
    transaction took more than 30 s to end on a busy machine: a broker waits 30 s (`request.timeout.ms`) for an answer
    before it repeats a request. Raises TimeoutError, also if Kafka is unreachable.
    """

    def settled() -> bool:
        ending = [each for each in read_transactions(bootstrap_servers) if each.ending]
        return not any(topic in (None, name) for each in ending for name, _ in each.partitions)

    eventually(settled, timeout)


def wait_until_ended(bootstrap_servers: str, prefix: str, timeout: float = 90) -> Transaction:
    """Wait until no transaction is open whose transactional id begins with `prefix`; return the newest of them.

    A commit returns as soon as the coordinator has written it into its log; the markers are written to the partitions
    afterwards. Raises TimeoutError, also if there is no such id or Kafka is unreachable.
    """

    def ended() -> list[Transaction]:
        found = [each for each in read_transactions(bootstrap_servers) if each.transactional_id.startswith(prefix)]
        return [] if any(each.open for each in found) else sorted(found, key=lambda each: each.producer_id)

    return eventually(ended, timeout)[-1]


def read_ends(bootstrap_servers: str, topic: str) -> list[PartitionEnd]:
    """Return where each partition ends. Raises KafkaUnreachable, NoSuchPartition, TimeoutError."""
    with admin(bootstrap_servers) as client:
        latest = dict.fromkeys(_partitions(client, topic), OffsetSpec.LATEST)
        # The order matters: the log may grow between the two requests, and the last stable offset must not be greater
        # than the log end.
        stable = _answer(lambda: client.list_partition_offsets(latest, IsolationLevel.READ_COMMITTED))
        end = _answer(lambda: client.list_partition_offsets(latest, IsolationLevel.READ_UNCOMMITTED))
    return [PartitionEnd(at.partition, stable[at].offset, end[at].offset) for at in latest]


def last_stable_offset(bootstrap_servers: str, topic: str, partition: int = 0) -> int:
    """Return the offset before which every transaction is decided: read_committed consumers read up to there.

    Raises KafkaUnreachable, NoSuchPartition, TimeoutError.
    """
    for end in read_ends(bootstrap_servers, topic):
        if end.partition == partition:
            return end.last_stable_offset
    raise NoSuchPartition(f"topic {topic!r} has no partition {partition}")


def _partitions(client: KafkaAdminClient, topic: str) -> list[TopicPartition]:
    [described] = client.describe_topics([topic])
    if not described["partitions"]:
        raise NoSuchPartition(f"this Kafka has no topic {topic!r}")
    return sorted(TopicPartition(topic, each["partition_index"]) for each in described["partitions"])


def _answer(question: Callable[[], Answer]) -> Answer:
    """Ask until there is an answer: a new leader or coordinator needs a moment."""
    return eventually(lambda: [question()])[0]


def transaction_table(bootstrap_servers: str) -> pandas.DataFrame:
    """Return one row per transactional id: its producer id and epoch, and the state of its latest transaction."""
    columns = ("transactional_id", "producer_id", "epoch", "state", "partitions")
    table = table_of(read_transactions(bootstrap_servers), columns)
    written = [", ".join(f"{topic}-{partition}" for topic, partition in cell) or "-" for cell in table["partitions"]]
    return table.assign(partitions=written).set_index("transactional id")


def end_table(bootstrap_servers: str, topic: str) -> pandas.DataFrame:
    """Return one row per partition: where it ends for read_committed consumers, and where for all others."""
    columns = ("partition", "last_stable_offset", "log_end", "hidden")
    return table_of(read_ends(bootstrap_servers, topic), columns).set_index("partition")


def table_of(rows: Sequence[object], columns: tuple[str, ...]) -> pandas.DataFrame:
    """Return a table with these attributes of each row as its columns."""
    cells = [[getattr(row, column) for column in columns] for row in rows]
    import pandas  # here, since the import is slow

    return pandas.DataFrame(cells, columns=[column.replace("_", " ") for column in columns])
