"""The database sink: results and batch id in one database transaction. Kafka has no part in it.

    sink = DatabaseSink("ip-count", "sqlite:///results.db")
    ip_count.start_query(ip_count.count_ips(records), sink, checkpoint)

Guarantee: the same as the exactly-once Kafka sink's. Each micro-batch's rows become visible exactly once, all
together or not at all, however often the query crashes and restarts from its checkpoint. Every reader gets that,
at every isolation level but read uncommitted: there is nothing that it has to set.

Where it stops: one database, which holds both the results and the marker; the checkpoint must survive; a driver
that hangs in the middle of a batch may hold locks until the database disconnects it (SQLite admits no other
writer in the meantime, and the batch of the next driver fails after 5 s and is repeated). A second part of a batch, or
a second table under one name, is refused as long as both are given the same file or URL; a server of two addresses is
not known as one.
"""

from __future__ import annotations

import contextlib
import sqlite3
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sqlalchemy import (
    URL,
    BigInteger,
    Column,
    Connection,
    Engine,
    MetaData,
    NullPool,
    String,
    Table,
    and_,
    create_engine,
    insert,
    inspect,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    IntegrityError,
    NotSupportedError,
    ProgrammingError,
    SQLAlchemyError,
    StatementError,
)

from exactly_once_kafka.batch import Batch, Marker
from exactly_once_kafka.errors import BatchFailed, SinkRefused
from exactly_once_kafka.points import Points, pass_by
from labs.pipeline.sinks.outside_kafka import SinkOutsideKafka, chunks
from labs.pipeline.sinks.table_rows import Row, TableRows, alike, numbered

ROWS_PER_STATEMENT = 10_000
NOT_YET = ("42501", "42P01")  # PostgreSQL's states for a missing privilege, and a missing table
OWN = ("batch_id", "attempt")  # columns that the sink fills itself

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
    A row that the table cannot hold exactly is refused, as `table_rows` says. Missing tables are made.

    Raises, inside the query: SinkRefused where going on could lose or double rows, or a row cannot be stored;
    BatchFailed where the batch failed and a restart of the query will repeat it.
    """

    def __init__(self, name: str, url: str, table: Table = IP_COUNT, *, points: Points = pass_by):
        super().__init__(name, points)
        self.table = table
        # A connection for each batch: one that broke in the last batch must not fail the next.
        self.engine: Engine = create_engine(url, poolclass=NullPool)
        if _in_memory(self.engine):
            raise ValueError(f"{url} is a database in memory, which ends with each batch; expected a file or a server")
        self._made_tables = False
        self._rows = TableRows(table, self.engine.dialect, OWN)
        self.goes_to = f"table {table.fullname!r}"

    def place(self) -> tuple[str, ...]:
        """Return the database, as far as its URL tells, and the name."""
        url = self.engine.url
        if url.get_backend_name() == "sqlite":
            return "database", str(_file_of(url).resolve()), self.name
        return "database", str(url.set(query={})), *map(str, sorted(url.query.items())), self.name

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
        self._check_columns()
        self._made_tables = True

    def _check_columns(self) -> None:
        """Raise SinkRefused if the table is another one than the sink was given, as an older version of it."""
        columns = inspect(self.engine).get_columns(self.table.name, self.table.schema)
        # To some databases case is one, to others not.
        found = {column["name"].lower(): column["type"] for column in columns}
        if missing := [column.name for column in self.table.columns if column.name.lower() not in found]:
            raise SinkRefused(
                f"sink {self.name!r} refuses to write: table {self.table.fullname!r} is in the database without "
                f"{', '.join(map(repr, missing))}. Add the columns (ALTER TABLE), and restart the query"
            )
        self._rows.stored_as(found)

    def write(self, values: Iterable[str], batch: Batch) -> None:
        self.points("before_write", batch.batch_id)
        try:
            with self.refusing_rows(batch), self._rejecting(), self.engine.begin() as transaction:
                self._write_rows(transaction, values, batch)
                self._move_marker(transaction, batch)
                self.points("before_commit", batch.batch_id)
                self.may_be_done()
        except SQLAlchemyError as error:
            raise self._failed(batch, error) from error
        self.points("after_commit", batch.batch_id)

    def _write_rows(self, transaction: Connection, values: Iterable[str], batch: Batch) -> None:
        tags = {"batch_id": batch.batch_id, "attempt": uuid.uuid4().hex[:8]}
        for number, chunk in enumerate(chunks(numbered(values, self._rows), ROWS_PER_STATEMENT)):
            for rows in alike({**row, **tags} for _, row in chunk):
                try:
                    transaction.execute(insert(self.table), rows)
                except (SQLAlchemyError, OverflowError, TypeError, ValueError) as error:
                    if not _is_for_good(error):
                        raise
                    raise _Rejected(error, rows) from error
            if number == 0:
                self.points("mid_transaction", batch.batch_id)

    @contextlib.contextmanager
    def _rejecting(self) -> Iterator[None]:
        """Say, once the transaction is rolled back, which row it is that the database rejects. Raises ValueError."""
        try:
            yield
        except _Rejected as rejected:
            row, said = self._first_rejected(rejected.rows) or ("a row", rejected.error)
            why = " ".join(str(getattr(said, "orig", None) or said).split()).rstrip(".")
            raise ValueError(f"the database rejects {row}: {why}") from rejected.error

    def _first_rejected(self, rows: list[Row]) -> tuple[str, Exception] | None:
        """Insert row by row, to no effect, and return the first that is rejected; None if only all together are."""
        with contextlib.suppress(DBAPIError), self.engine.connect() as connection, connection.begin() as transaction:
            try:
                for row in rows:
                    try:
                        connection.execute(insert(self.table), [row])
                    except (SQLAlchemyError, OverflowError, TypeError, ValueError) as error:
                        fields = {key: field for key, field in row.items() if key not in OWN}
                        return f"the row {fields!r:.300}", error
            finally:
                transaction.rollback()
        return None

    def _move_marker(self, transaction: Connection, batch: Batch) -> None:
        """Set the marker to this batch if it stands at the one before, or, behind a gap without rows, at its plan.

        Raises BatchFailed if somebody moved it. It comes last, since it keeps other drivers waiting from here to the
        commit.
        """
        now = {"batch_id": batch.batch_id, "query_id": batch.query_id, "plan": batch.plan}
        overtaken = BatchFailed(
            f"sink {self.name!r}, batch {batch.batch_id}: another driver has published a batch meanwhile, and "
            "this one is rolled back. If it is the same query, end one of the two; the other goes on when it is "
            "restarted"
        )
        if batch.batch_id == 0:
            try:
                transaction.execute(insert(MARKERS).values(sink=self.name, **now))
            except IntegrityError as error:
                raise overtaken from error
            return
        before = or_(
            MARKERS.c.batch_id == batch.batch_id - 1,
            and_(MARKERS.c.batch_id < batch.batch_id, MARKERS.c.plan == batch.previous_plan),
        )
        at = (before, MARKERS.c.query_id == batch.query_id)
        moved = transaction.execute(update(MARKERS).where(MARKERS.c.sink == self.name, *at).values(**now)).rowcount
        if moved != 1:
            raise overtaken

    def _failed(self, batch: Batch, error: SQLAlchemyError) -> BatchFailed | SinkRefused:
        if isinstance(error, DBAPIError) and _is_for_good(error):
            return SinkRefused(
                f"sink {self.name!r} refuses batch {batch.batch_id}: the database said: {error.orig}. No restart helps "
                "before that is changed: change the table or its rules, or mend or filter the rows in the query, and "
                "restart it; the batch is published once then"
            )
        return BatchFailed(
            f"sink {self.name!r}, batch {batch.batch_id}: the database said: {error}. "
            "Restart the query: the batch is repeated and published once"
        )


class _Rejected(Exception):
    """The database will not take one of these rows, now or later."""

    def __init__(self, error: Exception, rows: list[Row]):
        super().__init__(str(error))
        self.error, self.rows = error, rows


def _is_for_good(error: Exception) -> bool:
    """Tell whether a row, or the table, is what is wrong, so that no restart would help.

    What is not granted, or not there, may be so in a moment: a restart makes a table that is missing.
    """
    if not isinstance(error, DBAPIError):
        return isinstance(error, StatementError) or not isinstance(error, SQLAlchemyError)
    if getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR:  # an OperationalError like all others
        return "no such table" not in str(error.orig)
    passing = getattr(error.orig, "sqlstate", None) in NOT_YET
    return isinstance(error, DataError | IntegrityError | ProgrammingError | NotSupportedError) and not passing


def _file_of(url: URL) -> Path:
    """Return the file that is an SQLite database, also where it is named by a URI: file:results.db?uri=true."""
    name = url.database or ""
    return Path(unquote(urlsplit(name).path) if "uri" in url.query and name.startswith("file:") else name)


def _in_memory(engine: Engine) -> bool:
    database = engine.url.database or ""
    at_all = engine.url.get_backend_name() == "sqlite"
    return at_all and (not database or ":memory:" in database or engine.url.query.get("mode") == "memory")
