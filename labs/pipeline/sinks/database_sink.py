"""The database sink: results and batch id in one database transaction. Kafka has no part in it.

    sink = DatabaseSink("ip-count", "sqlite:///results.db")
    ip_count.start_query(ip_count.count_ips(records), sink, checkpoint)

Guarantee: the same as the exactly-once Kafka sink's. Each micro-batch's rows become visible exactly once, all
together or not at all, however often the query crashes and restarts from its checkpoint. Every reader gets that,
at every isolation level but read uncommitted: there is nothing that it has to set.

Where it stops: one database, which holds both the results and the marker; the checkpoint must survive; a driver
that hangs in the middle of a batch may hold locks until the database disconnects it (SQLite admits no other
writer in the meantime, and the batch of the next driver fails after 5 s and is repeated).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    MetaData,
    NullPool,
    String,
    Table,
    create_engine,
    insert,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.exc import SQLAlchemyError

from exactly_once_kafka.batch import Batch, Marker
from exactly_once_kafka.errors import BatchFailed
from exactly_once_kafka.points import Points, pass_by
from labs.pipeline.sinks.outside_kafka import SinkOutsideKafka, chunks

ROWS_PER_STATEMENT = 10_000

METADATA = MetaData()
# No unique key: it would turn a duplicate into an error, and the point is that there is none.
IP_COUNT = Table(
    "ip_count",
    METADATA,
    Column("window_start", BigInteger, nullable=False),  # epoch millis
    Column("ip", String, nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("batch_id", BigInteger, nullable=False),
    Column("attempt", String(8), nullable=False),
)
MARKERS = Table(
    "batch_markers",
    METADATA,
    Column("sink", String, primary_key=True),
    Column("batch_id", BigInteger, nullable=False),
    Column("query_id", String, nullable=False),
    Column("plan", String),  # NULL where an older version of the sink wrote the marker
)


class DatabaseSink(SinkOutsideKafka):
    """A foreachBatch function that publishes each micro-batch exactly once.

    `name` identifies the sink for good: no two queries may share it in one database, and no restart may change
    it. `url` is SQLAlchemy's. Rows have a `value` column, as for the Kafka sinks: a JSON object with the columns
    of `table`, to which the sink adds batch_id and attempt; a field that is not there is NULL, or the column's default.
    Missing tables are made.

    Raises, inside the query: SinkRefused where going on could lose or double rows, BatchFailed where the
    batch failed and a restart of the query will repeat it.
    """

    def __init__(self, name: str, url: str, table: Table = IP_COUNT, *, points: Points = pass_by):
        super().__init__(name, points)
        self.table = table
        # A connection for each batch: one that broke in the last batch must not fail the next.
        self.engine: Engine = create_engine(url, poolclass=NullPool)
        self._made_tables = False
        # A statement's columns are its first row's. JSON has no field for a null, so each row gets all that may be one.
        self._absent = {column.name: None for column in table.columns if column.nullable and not _has_default(column)}

    def read_marker(self, batch: Batch) -> Marker | None:
        try:
            if not self._made_tables:
                self._make_tables()
            with self.engine.connect() as connection:
                found = connection.execute(select(MARKERS).where(MARKERS.c.sink == self.name)).one_or_none()
        except SQLAlchemyError as error:
            raise self._failed(batch, error) from error
        return Marker(found.batch_id, found.query_id, found.plan) if found else None

    def _make_tables(self) -> None:
        MARKERS.create(self.engine, checkfirst=True)
        self.table.create(self.engine, checkfirst=True)
        if "plan" not in [column["name"] for column in inspect(self.engine).get_columns(MARKERS.name)]:
            with self.engine.begin() as connection:  # an older version of the sink made it
                connection.execute(text(f"ALTER TABLE {MARKERS.name} ADD COLUMN plan VARCHAR"))
        self._made_tables = True

    def write(self, values: Iterable[str], batch: Batch) -> None:
        self.points("before_write", batch.batch_id)
        try:
            with self.engine.begin() as transaction:
                self._write_rows(transaction, values, batch)
                self._move_marker(transaction, batch)
                self.points("before_commit", batch.batch_id)
        except SQLAlchemyError as error:
            raise self._failed(batch, error) from error
        self.points("after_commit", batch.batch_id)

    def _write_rows(self, transaction: Connection, values: Iterable[str], batch: Batch) -> None:
        tags = {"batch_id": batch.batch_id, "attempt": uuid.uuid4().hex[:8]}
        for number, chunk in enumerate(chunks(values, ROWS_PER_STATEMENT)):
            rows = [{**self._absent, **json.loads(value), **tags} for value in chunk]
            transaction.execute(insert(self.table), rows)
            if number == 0:
                self.points("mid_transaction", batch.batch_id)

    def _move_marker(self, transaction: Connection, batch: Batch) -> None:
        """Set the marker to this batch if it stands at the one before. Raises BatchFailed if somebody moved it.

        It comes last, since it keeps other drivers waiting from here to the commit.
        """
        now = {"batch_id": batch.batch_id, "query_id": batch.query_id, "plan": batch.plan}
        if batch.batch_id == 0:
            transaction.execute(insert(MARKERS).values(sink=self.name, **now))
            return
        at = (MARKERS.c.batch_id == batch.batch_id - 1, MARKERS.c.query_id == batch.query_id)
        moved = transaction.execute(update(MARKERS).where(MARKERS.c.sink == self.name, *at).values(**now)).rowcount
        if moved != 1:
            raise BatchFailed(
                f"sink {self.name!r}, batch {batch.batch_id}: another driver has published a batch meanwhile, and "
                "this one is rolled back. If it is the same query, end one of the two; the other goes on when it is "
                "restarted"
            )

    def _failed(self, batch: Batch, error: SQLAlchemyError) -> BatchFailed:
        return BatchFailed(
            f"sink {self.name!r}, batch {batch.batch_id}: the database said: {error}. "
            "Restart the query: the batch is repeated and published once"
        )


def _has_default(column: Column[Any]) -> bool:
    return column.default is not None or column.server_default is not None
