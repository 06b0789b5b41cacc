"""Transactions and partition ends as small tables for a lesson. `transactions` explains the columns."""

from __future__ import annotations

from collections.abc import Sequence

import pandas

from labs.evidence.readers.transactions import read_ends, read_transactions


def transaction_table(bootstrap_servers: str) -> pandas.DataFrame:
    """Return one row per transactional id: its producer id and epoch, and the state of its latest transaction."""
    columns = ("transactional_id", "producer_id", "epoch", "state", "partitions")
    table = _table(read_transactions(bootstrap_servers), columns)
    written = [", ".join(f"{topic}-{partition}" for topic, partition in cell) or "-" for cell in table["partitions"]]
    return table.assign(partitions=written).set_index("transactional id")


def end_table(bootstrap_servers: str, topic: str) -> pandas.DataFrame:
    """Return one row per partition: where it ends for read_committed consumers, and where for all others."""
    columns = ("partition", "last_stable_offset", "log_end", "hidden")
    return _table(read_ends(bootstrap_servers, topic), columns).set_index("partition")


def _table(rows: Sequence[object], columns: tuple[str, ...]) -> pandas.DataFrame:
    cells = [[getattr(row, column) for column in columns] for row in rows]
    return pandas.DataFrame(cells, columns=[column.replace("_", " ") for column in columns])
