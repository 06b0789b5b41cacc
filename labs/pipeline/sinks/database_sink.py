"""The database sink: results and batch id in one database transaction, without Kafka.

    sink = DatabaseSink("ip-count", "sqlite:///results.db")
    ip_count.start_query(ip_count.count_ips(records), sink, checkpoint)

Guarantee: the same as the exactly-once Kafka sink's. Each micro-batch's rows become visible exactly once, all
together or not at all, however often the query crashes and restarts from its checkpoint. That holds for every reader,
at every isolation level except read uncommitted; a reader need not set anything.

Limitations: tested with SQLite and PostgreSQL (12 or newer); one database, which holds both the results and the marker;
the checkpoint must survive; a driver that hangs in the middle of a batch may hold locks until the database disconnects
it (SQLite admits no other writer in the meantime, and the batch of the next driver fails after 5 s and is repeated).

The table of markers has a row with an id of the table itself. By this id the sink recognises that two URLs name one
database, and that the table of markers was deleted after batch 0.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, cast

from sqlalchemy import (
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
    func,
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

from exactly_once_kafka.errors import BatchFailed, SinkRefused
from exactly_once_kafka.points import Points, pass_by
from exactly_once_kafka.protocol import ADOPTED, Batch, Marker, Step
from exactly_once_kafka.query import place_at_first
from labs.pipeline.sinks.outside_kafka import SinkOutsideKafka, TransportOutsideKafka, chunks
from labs.pipeline.sinks.table_rows import Row, TableRows, alike, numbered

ROWS_PER_STATEMENT = 10_000
OF_THE_TABLE = ""  # in the table of markers, instead of a sink's name: the row with the table's own id
NOT_YET = ("42501", "42P01")  # PostgreSQL's states for a missing privilege, and a missing table
# PostgreSQL: a table and its partitions.
PARTS = """
    FROM pg_class, (SELECT to_regclass(CAST(:name AS text)) AS ours) AS named
    WHERE (pg_class.oid = ours OR pg_class.oid IN (SELECT relid FROM pg_partition_tree(ours)))
"""
# Whether one of them is a view, or has a trigger or a rule.
HAS_TRIGGER = f"""
    SELECT bool_or(
        relkind = 'v' OR relhasrules
        OR EXISTS (SELECT FROM pg_trigger WHERE tgrelid = pg_class.oid AND NOT tgisinternal)
    ) {PARTS}
"""
# The first that a crash may empty, or that commits for itself.
UNSAFE = f"SELECT relname, relkind {PARTS} AND (relkind = 'f' OR relpersistence <> 'p') LIMIT 1"
OWN = ("batch_id", "attempt")  # columns that the sink fills itself

METADATA = MetaData()
# No unique key: with one, the database would prevent duplicates, and not the sink.
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
    Column("plan", String, nullable=False),
)


class DatabaseSink(SinkOutsideKafka):
    """A foreachBatch function that publishes each micro-batch exactly once.

    `name` must be unique in the database and must never change. `url` is SQLAlchemy's. Rows have a `value` column, as
    for the Kafka sinks: a JSON object with the columns of `table`, to which the sink adds batch_id and attempt; a
    missing field is NULL, or the column's default. A row that the table cannot hold exactly is refused, as `table_rows`
    says; so is one that a trigger, a rule or a view leaves out. Missing tables are created.

    If the table in PostgreSQL has a trigger or a rule, or is a view, the sink counts the stored rows of each batch: it
    needs SELECT on the table, and without an index on batch_id each count reads the whole table. The count does not
    show a trigger that changes a row, or deletes rows of earlier batches.

    Raises, inside the query: SinkRefused if going on could lose or duplicate rows, or if a row cannot be stored;
    BatchFailed if the batch failed and a restart of the query repeats it.
    """

    # Two threads could both find that a table is missing, and both create it.
    _making_tables: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, name: str, url: str, table: Table = IP_COUNT, *, points: Points = pass_by):
        super().__init__(name, points)
        self.table = table
        # A connection for each batch: one that broke in the last batch must not fail the next.
        self.engine: Engine = create_engine(url, poolclass=NullPool)
        if _in_memory(self.engine):
            raise ValueError(f"{url} is a database in memory, which ends with each batch; expected a file or a server")
        self._markers_id: str | None = None
        self._rows = TableRows(table, self.engine.dialect, OWN)
        self.goes_to = f"table {table.fullname!r}"

    @property
    def noted_as(self) -> str:
        """Return another name than that of a Kafka sink of the same name, which the query may have as well."""
        return f"database/{self.name}"

    def place(self, batch: Batch) -> tuple[str, ...]:
        """Return the id of the table of markers, and the name."""
        try:
            return "database", self.markers_id(), self.name
        except SQLAlchemyError as error:
            raise self.failed(error, batch) from error

    def transport(self, batch: Batch, values: Iterable[str], execute: Callable[[], object]) -> DatabaseTransport:
        return DatabaseTransport(self, batch, values, execute)

    def read_marker(self) -> Marker | None:
        """Return the marker; create the tables first if they are missing. Raises SQLAlchemyError."""
        self.markers_id()
        with self.engine.connect() as connection:
            found = connection.execute(select(MARKERS).where(MARKERS.c.sink == self.name)).one_or_none()
        return Marker(found.batch_id, found.query_id, found.plan) if found else None

    def markers_id(self) -> str:
        """Return the id of the table of markers; create the tables if they are missing. Raises SQLAlchemyError."""
        if (known := self._markers_id) is None:
            with self._making_tables:
                known = self._markers_id = self._make_tables()
        return known

    def _make_tables(self) -> str:
        self._check_transactions()
        for table in (MARKERS, self.table):
            try:
                table.create(self.engine, checkfirst=True)
            except DBAPIError:  # unless another process has just made it
                if not inspect(self.engine).has_table(table.name, schema=table.schema):
                    raise
        self._check_durable()
        self._check_constraints()
        self._check_columns()
        ids = select(MARKERS.c.query_id).where(MARKERS.c.sink == OF_THE_TABLE)
        new = {"sink": OF_THE_TABLE, "batch_id": -1, "query_id": str(uuid.uuid4()), "plan": "the id of this table"}
        with self.engine.connect() as connection:
            found = connection.execute(ids).scalar_one_or_none()
        if found is None:
            with contextlib.suppress(IntegrityError), self.engine.begin() as connection:
                connection.execute(insert(MARKERS).values(new))  # fails if another driver has just inserted its id
            with self.engine.connect() as connection:
                found = connection.execute(ids).scalar_one()
        return str(found)

    def ensure_beginning(self) -> None:
        """Make sure that batch 0, which has no marker, was not published. Raises MarkerMismatch, CheckpointFailed."""
        if self._query is None:  # publish_values was called without a query, and so without a checkpoint
            return
        note, place = self.query.checkpoint_note(self.noted_as), self.markers_id()
        if place_at_first(note, place, f"table {MARKERS.name!r} of the database") is None:
            note.write(place)

    def failed(self, error: SQLAlchemyError, batch: Batch) -> BatchFailed | SinkRefused:
        """Return the error that says what the database said, and what to do."""
        self._markers_id = None  # a table may have been deleted
        if isinstance(error, DBAPIError) and _is_permanent(error):
            return SinkRefused(
                f"sink {self.name!r} refuses batch {batch.batch_id}: the database said: {error.orig}. No "
                "restart helps before that is changed: change the table or its rules, or mend or filter the rows in "
                "the query, and restart it; the batch is then published once"
            )
        return BatchFailed(
            f"sink {self.name!r}, batch {batch.batch_id}: the database said: {error}. "
            "Restart the query: the batch is repeated and published once"
        )

    def _check_columns(self) -> None:
        """Raise SinkRefused if the table in the database lacks columns, as an older version of it may."""
        columns = inspect(self.engine).get_columns(self.table.name, self.table.schema)
        # Some databases ignore the case of names, others do not.
        found = {column["name"].lower(): column["type"] for column in columns}
        if missing := [column.name for column in self.table.columns if column.name.lower() not in found]:
            raise SinkRefused(
                f"sink {self.name!r} refuses to write: table {self.table.fullname!r} in the database has no column "
                f"{', '.join(map(repr, missing))}. Add what is missing (ALTER TABLE), and restart the query"
            )
        self._rows.stored_as(found)

    def _check_transactions(self) -> None:
        """Raise SinkRefused if the database would commit each statement, as `?autocommit=true` in a URL asks it to."""
        with contextlib.suppress(NotImplementedError), self.engine.connect() as connection:
            if self.engine.dialect.detect_autocommit_setting(cast(Any, connection.connection.dbapi_connection)):
                raise SinkRefused(
                    f"sink {self.name!r} refuses to write: with this URL the database commits each statement at once "
                    "(autocommit), so that parts of a batch would be visible. Change the URL, and restart the query"
                )

    def _check_constraints(self) -> None:
        """Raise SinkRefused if SQLite replaces rows of the table."""
        if self.engine.dialect.name != "sqlite":
            return
        made_by = "SELECT sql FROM sqlite_master WHERE type = 'table' AND lower(name) = lower(:name)"
        with self.engine.connect() as connection:
            sql = connection.execute(text(made_by), {"name": self.table.name}).scalar_one_or_none() or ""
        if "ON CONFLICT REPLACE" in " ".join(sql.upper().split()):
            raise SinkRefused(
                f"sink {self.name!r} refuses to write: table {self.table.fullname!r} has a constraint with ON CONFLICT "
                "REPLACE, by which a new row deletes an earlier result. Make the table without it, and restart the "
                "query"
            )

    def _check_durable(self) -> None:
        """Raise SinkRefused if a crash of PostgreSQL may empty one of the tables, or if one commits for itself."""
        if self.engine.dialect.name != "postgresql":
            return
        with self.engine.connect() as connection:
            for table in (self.table, MARKERS):
                for name, kind in connection.execute(text(UNSAFE), {"name": self._full_name(table)}):
                    why = (
                        "is in another database, which commits for itself"
                        if kind == "f"
                        else "is unlogged or temporary, so that a crash of the database empties it"
                    )
                    raise SinkRefused(
                        f"sink {self.name!r} refuses to write: table {name!r} {why}. Make an ordinary table of it, and "
                        "restart the query"
                    )

    def write_rows(
        self, transaction: Connection, values: Iterable[str], batch: Batch, in_rows: Callable[[], object]
    ) -> None:
        """Insert the rows; call `in_rows` after the first of them. Raises SQLAlchemyError, _Rejected, ValueError."""
        tags, inserted = {"batch_id": batch.batch_id, "attempt": uuid.uuid4().hex[:8]}, 0
        for number, chunk in enumerate(chunks(numbered(values, self._rows), ROWS_PER_STATEMENT)):
            for rows in alike({**row, **tags} for _, row in chunk):
                inserted += len(rows)
                try:
                    self._insert(transaction, rows, inserted)
                except (SQLAlchemyError, OverflowError, TypeError, ValueError) as error:
                    if not _is_permanent(error):
                        raise
                    raise _Rejected(error, rows) from error
            if number == 0:
                in_rows()
        try:
            if self._may_differ(transaction, inserted):
                self._check_stored(transaction, tags, inserted)
        except (SQLAlchemyError, ValueError) as error:
            if not _is_permanent(error):
                raise
            raise _Rejected(error, []) from error

    def _may_differ(self, transaction: Connection, inserted: int) -> bool:
        """Tell whether the table may have other rows than those that were inserted, as after a trigger.

        It costs no search of the table. It asks only SQLite and PostgreSQL. In MySQL and MariaDB, a trigger cannot
        change the table to which it belongs.
        """
        if self.engine.dialect.name == "sqlite":
            return transaction.connection.dbapi_connection.total_changes != inserted  # type: ignore[union-attr]
        if self.engine.dialect.name != "postgresql":
            return False
        may = transaction.execute(text(HAS_TRIGGER), {"name": self._full_name(self.table)}).scalar_one_or_none()
        if may:
            transaction.execute(text("SET CONSTRAINTS ALL IMMEDIATE"))  # triggers that wait for the commit act now
        return bool(may)

    def _full_name(self, table: Table) -> str:
        return self.engine.dialect.identifier_preparer.format_table(table)

    def _check_stored(self, transaction: Connection, tags: Row, expected: int) -> None:
        """Raise ValueError unless the table has `expected` rows with the tags. It searches the table."""
        ours = (self.table.c[name] == tags[name] for name in OWN)
        stored = transaction.execute(select(func.count()).select_from(self.table).where(*ours)).scalar_one()
        if stored != expected:
            raise ValueError(
                f"there was no error, but it has stored {stored} of {expected} rows: look for a trigger, a rule, "
                f"or an ON CONFLICT clause of table {self.table.fullname!r}"
            )

    def _insert(self, transaction: Connection, rows: list[Row], expected: int) -> None:
        """Insert the rows, after which this attempt must have stored `expected` rows. Raises ValueError if it has not.

        A trigger or rule may leave out rows without an error. It may also put them into a partition of the table, and
        then the INSERT reports none. So if the reported number differs, the stored rows are counted.
        """
        reported = transaction.execute(insert(self.table), rows, execution_options={"preserve_rowcount": True}).rowcount
        if reported != len(rows):
            self._check_stored(transaction, rows[0], expected)

    def first_rejected(self, rows: list[Row]) -> tuple[str, Exception] | None:
        """Insert row by row, roll back, and return the first row that is rejected; None if each alone is accepted."""
        with contextlib.suppress(DBAPIError), self.engine.connect() as connection, connection.begin() as transaction:
            try:
                for number, row in enumerate(rows, 1):
                    try:
                        self._insert(connection, [row], number)
                    except (SQLAlchemyError, OverflowError, TypeError, ValueError) as error:
                        fields = {key: field for key, field in row.items() if key not in OWN}
                        return f"the row {fields!r:.300}", error
            finally:
                transaction.rollback()
        return None

    def move_marker(self, transaction: Connection, batch: Batch) -> None:
        """Set the marker to this batch. Raises BatchFailed if another driver has moved the marker.

        The marker must be at the batch before, with its plan. If Spark has added batches without rows, it may be at an
        older batch that has the plan of the batch before. This is the last step before the commit, since other drivers
        wait from here to the commit.
        """
        now = {"batch_id": batch.batch_id, "query_id": batch.query_id, "plan": batch.plan}
        if batch.batch_id == 0:
            try:
                transaction.execute(insert(MARKERS).values(sink=self.name, **now))
            except IntegrityError as error:
                raise self.overtaken(batch) from error
            return
        adopted = and_(MARKERS.c.batch_id == batch.batch_id - 1, MARKERS.c.plan == ADOPTED)
        before = or_(adopted, and_(MARKERS.c.batch_id < batch.batch_id, MARKERS.c.plan == batch.previous_plan))
        at = (before, MARKERS.c.query_id == batch.query_id)
        moved = transaction.execute(update(MARKERS).where(MARKERS.c.sink == self.name, *at).values(**now)).rowcount
        if moved != 1:
            raise self.overtaken(batch)

    def overtaken(self, batch: Batch) -> BatchFailed:
        """Return the error of a batch that another driver has published first."""
        return BatchFailed(
            f"sink {self.name!r}, batch {batch.batch_id}: another driver has published a batch meanwhile, and "
            "this one is rolled back. If it is the same query, end one of the two; the other goes on when it is "
            "restarted"
        )


class DatabaseTransport(TransportOutsideKafka):
    """Takes the steps of one batch, in one transaction of the database."""

    def __init__(self, sink: DatabaseSink, batch: Batch, values: Iterable[str], execute: Callable[[], object]):
        super().__init__(batch, values, execute, sink.in_rows(batch))
        self._sink = sink
        self._connection: Connection | None = None  # with the open transaction

    def take(self, step: Step) -> Any:
        try:
            return super().take(step)
        except SQLAlchemyError as error:
            raise self._sink.failed(error, self.batch) from error

    def read_marker(self) -> Marker | None:
        marker = self._sink.read_marker()
        if marker is None and self.batch.batch_id == 0:
            self._sink.ensure_beginning()
        return marker

    def _transaction(self) -> Connection:
        """Return the open transaction; begin it at the first call."""
        if self._connection is None:
            self._connection = self._sink.engine.connect()
        return self._connection

    def rows(self) -> bool:
        try:
            self._sink.write_rows(self._transaction(), self.values, self.batch, self.in_rows)
        except _Rejected as rejected:
            self._end()
            now = self._sink.read_marker()
            if now is not None and now.batch_id >= self.batch.batch_id:  # its rows may be what the database rejects
                raise self._sink.overtaken(self.batch) from rejected.error
            row, said = self._sink.first_rejected(rejected.rows) or ("a row", rejected.error)
            why = " ".join(str(getattr(said, "orig", None) or said).split()).rstrip(".")
            raise ValueError(f"the database rejects {row}: {why}") from rejected.error
        return True

    def marker(self) -> None:
        self._sink.move_marker(self._transaction(), self.batch)

    def commit(self) -> None:
        self._transaction().commit()
        self._end()

    def give_up(self, seconds: float) -> None:
        with contextlib.suppress(SQLAlchemyError):  # otherwise the database rolls back
            self._end()

    def _end(self) -> None:
        """Close the connection, which rolls back what is not committed."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Rejected(Exception):
    """The database will not take one of these rows, now or later."""

    def __init__(self, error: Exception, rows: list[Row]):
        super().__init__(str(error))
        self.error, self.rows = error, rows


def _is_permanent(error: Exception) -> bool:
    """Tell whether a row or the table is wrong, so that a restart alone does not help.

    A missing privilege may be granted in a moment, and a restart creates a missing table.
    """
    if not isinstance(error, DBAPIError):
        return isinstance(error, StatementError) or not isinstance(error, SQLAlchemyError)
    if getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR:  # an OperationalError like all others
        return "no such table" not in str(error.orig)
    passing = getattr(error.orig, "sqlstate", None) in NOT_YET
    return isinstance(error, DataError | IntegrityError | ProgrammingError | NotSupportedError) and not passing


def _in_memory(engine: Engine) -> bool:
    database = engine.url.database or ""
    at_all = engine.url.get_backend_name() == "sqlite"
    return at_all and (not database or ":memory:" in database or engine.url.query.get("mode") == "memory")
