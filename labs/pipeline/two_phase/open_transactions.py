"""Lists the open transactions, once the coordinators have loaded their logs.

A broker that has just come back answers before it has read its transaction log, and lists no transactions. Only a
request about one transactional id shows that (NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS). So this asks for an id in
each partition of that log first: a coordinator that answers "no such id" has read the partition.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from kafka.errors import TransactionalIdNotFoundError

from labs.equipment.topics import admin
from labs.pipeline.two_phase.end_transaction import describe, retry, transaction_coordinator
from labs.pipeline.two_phase.prepared import PreparedTransaction

TRANSACTION_LOG = "__transaction_state"


def lingering(bootstrap_servers: str, prefix: str, timeout: float = 60) -> list[PreparedTransaction]:
    """Return the transactions that are open now under transactional ids that begin with `prefix`.

    Raises TimeoutError if the coordinators do not answer within `timeout` seconds, for example while they load.
    """
    return retry(lambda: _open_now(bootstrap_servers, prefix), timeout, "what is open is not known")


def _open_now(bootstrap_servers: str, prefix: str) -> list[PreparedTransaction]:
    with admin(bootstrap_servers) as kafka:
        [log] = kafka.describe_topics([TRANSACTION_LOG])
        for transactional_id in _one_per_partition(len(log["partitions"])):
            with transaction_coordinator(bootstrap_servers, transactional_id) as coordinator:
                describe(transactional_id, coordinator)  # raises a retriable error unless that partition is loaded
        listed = [
            each.transactional_id
            for broker in kafka.list_transactions(state_filters=["Ongoing"]).values()
            for each in broker
        ]
        found = []
        for transactional_id in sorted(filter(lambda each: each.startswith(prefix), listed)):
            try:
                [now] = kafka.describe_transactions([transactional_id]).values()
            except TransactionalIdNotFoundError:  # expired since it was listed
                continue
            if now.state.value == "Ongoing":
                found.append(PreparedTransaction(transactional_id, now.producer_id, now.producer_epoch))
        return found


def _one_per_partition(partitions: int) -> Iterator[str]:
    """Yield a transactional id for each partition of the transaction log."""
    missing = set(range(partitions))
    for number in itertools.count():
        if not missing:
            return
        transactional_id = f"labs-is-loaded-{number}"
        if (partition := partition_of(transactional_id, partitions)) in missing:
            missing.remove(partition)
            yield transactional_id


def partition_of(transactional_id: str, partitions: int) -> int:
    """Return the partition of an id: `Utils.abs(id.hashCode()) % partitions`, in Java's 32-bit arithmetic."""
    code = 0
    for unit in memoryview(transactional_id.encode("utf-16-le")).cast("H"):
        code = (31 * code + unit) & 0xFFFFFFFF
    signed = code - (1 << 32) if code >> 31 else code
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions
