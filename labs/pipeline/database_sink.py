"""The database sink: results and batch id in one database transaction. Kafka has no part in it.

    sink = DatabaseSink("ip-count", "sqlite:///results.db")
    ip_count.start(ip_count.ip_count(records), sink, checkpoint)

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

from pyspark.sql import DataFrame
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
    select,
    update,
)
from sqlalchemy.exc import SQLAlchemyError

from labs.pipeline import fault_points
from labs.pipeline.fault_points import reach
from labs.pipeline.marker import Marker, is_committed
from labs.pipeline.outside_kafka import ForeignSinkRefused, chunks, drain, query_id_of, values_of
from labs.pipeline.sink_errors import BatchFailed

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
)


class DatabaseSink:
    """A foreachBatch function that publishes each micro-batch exactly once.

    `name` identifies the sink for good: no two queries may share it in one database, and no restart may change
    it. `url` is SQLAlchemy's. Rows have a `value` column, as for the Kafka sinks: a JSON object with the columns
    of `table`, to which the sink adds batch_id and attempt. Missing tables are made.

    Raises, inside the query: SinkRefused where going on could lose or double rows, BatchFailed where the
    batch failed and a restart of the query will repeat it.
    """

    def __init__(self, name: str, url: str, table: Table = IP_COUNT):
        self.name, self.table = name, table
        # A connection for each batch: one that broke in the last batch must not fail the next.
        self.engine: Engine = create_engine(url, poolclass=NullPool)
        self._made_tables = False

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        query_id = query_id_of(rows)
        if self.is_committed(batch_id, query_id):
            drain(rows)
        else:
            self.write(values_of(rows), batch_id, query_id)
        reach("before_checkpoint", batch_id)

    def is_committed(self, batch_id: int, query_id: str) -> bool:
        """Tell whether the batch was committed before. Raises SinkRefused, BatchFailed."""
        try:
            if not self._made_tables:
                MARKERS.create(self.engine, checkfirst=True)
                self.table.create(self.engine, checkfirst=True)
                self._made_tables = True
            with self.engine.connect() as connection:
                marker = self._marker(connection)
        except SQLAlchemyError as error:
            raise self._failed(batch_id, error) from error
        return is_committed(marker, self.name, batch_id, query_id, ForeignSinkRefused)

    def write(self, values: Iterable[str], batch_id: int, query_id: str) -> None:
        """Write a batch that is not committed yet: rows and marker in one transaction. Raises BatchFailed."""
        reach("before_write", batch_id)
        try:
            with self.engine.begin() as transaction:
                self._write_rows(transaction, values, batch_id)
                self._move_marker(transaction, batch_id, query_id)
                reach("before_commit", batch_id)
        except SQLAlchemyError as error:
            raise self._failed(batch_id, error) from error
        reach("after_commit", batch_id)

    def _write_rows(self, transaction: Connection, values: Iterable[str], batch_id: int) -> None:
        tags = {"batch_id": batch_id, "attempt": uuid.uuid4().hex[:8]}
        size = 1 if fault_points.listener else ROWS_PER_STATEMENT  # so that a crash can leave the first row alone
        for number, chunk in enumerate(chunks(values, size)):
            if number == 1:
                reach("mid_transaction", batch_id)
            transaction.execute(insert(self.table), [{**json.loads(value), **tags} for value in chunk])

    def _marker(self, connection: Connection) -> Marker | None:
        found = connection.execute(select(MARKERS).where(MARKERS.c.sink == self.name)).one_or_none()
        return Marker(found.batch_id, found.query_id) if found else None

    def _move_marker(self, transaction: Connection, batch_id: int, query_id: str) -> None:
        """Set the marker to this batch if it stands at the one before. Raises BatchFailed if somebody moved it.

        It comes last, since it keeps other drivers waiting from here to the commit.
        """
        if batch_id == 0:
            transaction.execute(insert(MARKERS).values(sink=self.name, batch_id=0, query_id=query_id))
            return
        before = (MARKERS.c.sink == self.name, MARKERS.c.batch_id == batch_id - 1, MARKERS.c.query_id == query_id)
        moved = transaction.execute(update(MARKERS).where(*before).values(batch_id=batch_id)).rowcount
        if moved != 1:
            raise BatchFailed(
                f"sink {self.name!r}, batch {batch_id}: another driver has published a batch meanwhile, and this one "
                "is rolled back. If it is the same query, end one of the two; the other goes on when it is restarted"
            )

    def _failed(self, batch_id: int, error: SQLAlchemyError) -> BatchFailed:
        return BatchFailed(
            f"sink {self.name!r}, batch {batch_id}: the database said: {error}. "
            "Restart the query: the batch is repeated and published once"
        )
