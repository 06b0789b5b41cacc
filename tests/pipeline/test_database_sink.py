"""The database sink, on SQLite and on a real PostgreSQL: crashed at every point, killed, and refused where it must."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from decimal import Decimal

import pytest
from pyspark.errors import StreamingQueryException
from sqlalchemy import (
    ARRAY,
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Engine,
    Float,
    Integer,
    MetaData,
    Numeric,
    String,
    Table,
    create_engine,
    event,
    func,
    insert,
    inspect,
    select,
    text,
    update,
)

from exactly_once_kafka.errors import BatchFailed, RowRefused, SinkRefused
from exactly_once_kafka.points import pass_by
from exactly_once_kafka.protocol import Batch
from labs.equipment.postgres import Postgres
from labs.equipment.waiting import eventually
from labs.evidence.auditor.audit import audit
from labs.evidence.readers.other_readers import read_database
from labs.faults.fault_points import Fault, FaultPoints, InjectedCrash
from labs.pipeline.broken_protocols import marker_after_the_commit, marker_before_the_rows, marker_ignored
from labs.pipeline.sinks.database_sink import IP_COUNT, MARKERS, METADATA, DatabaseSink, DatabaseTransport
from tests.pipeline.sink_process import QUERY, batch, drained, values
from tests.pipeline.sink_runs import (
    POINTS_OF_A_WRITE,
    damage_checkpoint,
    expected,
    is_published_before,
    run,
    run_and_crash_at_every_point,
    write_in_a_process_killed_at,
)

PLAIN, COUPON = '{"id": 1}', '{"id": 2, "coupon": "SAVE10"}'


@pytest.fixture(scope="module")
def postgres():
    with Postgres() as started:
        yield started


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    """An empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'results.db'}"
    return empty(request.getfixturevalue("postgres"))


def empty(postgres):
    engine = create_engine(postgres.url)
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
        connection.execute(text("GRANT ALL ON SCHEMA public TO PUBLIC"))
    engine.dispose()
    return postgres.url


class MarkerAfterwards(DatabaseSink):
    """Rows and marker in two transactions, rows first."""

    protocol = staticmethod(marker_after_the_commit)


class MarkerBefore(DatabaseSink):
    """Rows and marker in two transactions, marker first."""

    protocol = staticmethod(marker_before_the_rows)


class RowByRow(DatabaseSink):
    """Every statement a transaction of its own."""

    def transport(self, batch, values, execute):
        return CommitsEachStatement(self, batch, values, execute)


class CommitsEachStatement(DatabaseTransport):
    def _transaction(self):
        if self._connection is None:
            self._connection = super()._transaction().execution_options(isolation_level="AUTOCOMMIT")
        return self._connection


class NeverLooks(DatabaseSink):
    """Writes every batch, whether it was committed before or not."""

    protocol = staticmethod(marker_ignored)


class ServerIsKilled:
    """A fault: the database dies under the batch and comes back."""

    point, batch = "before_commit", 8

    def __init__(self, postgres):
        self.postgres = postgres

    def strike(self):
        self.postgres.kill()
        self.postgres.start()


@pytest.mark.long
def test_query_crashed_at_every_point_neither_loses_nor_doubles(spark, broker, classroom_log, url, tmp_path, request):
    more = [] if url.startswith("sqlite") else [ServerIsKilled(request.getfixturevalue("postgres"))]
    sink = DatabaseSink("ip-count", url, points=(points := FaultPoints()))
    attempt = lambda: run(spark, broker, classroom_log, sink, tmp_path / "checkpoint")  # noqa: E731
    run_and_crash_at_every_point(attempt, points, *more)
    verdict = audit(classroom_log.expected, read_database(url))
    assert verdict.valid, verdict


@pytest.mark.bench
@pytest.mark.parametrize("point", POINTS_OF_A_WRITE)
def test_process_killed_at_any_point_leaves_the_batch_whole_or_absent(url, point):
    sink = DatabaseSink("test", url)
    publish(sink, 0, count=1)
    write_in_a_process_killed_at(point, "database", url)
    published = is_published_before(point)
    assert audit(expected(1, 1) if published else expected(1), read_database(url)).valid
    # The replay computes something else: still, one version is visible, and no row of the other.
    publish(sink, 1, count=2)
    verdict = audit(expected(1, 1) if published else expected(1, 2), read_database(url))
    assert verdict.valid, verdict


@pytest.mark.bench
@pytest.mark.parametrize(
    ("mutant", "point", "anomaly"),
    [
        (MarkerAfterwards, "after_commit", "DUPLICATE"),
        (MarkerBefore, "after_commit", "LOST"),
        (RowByRow, "mid_rows", "DUPLICATE"),
    ],
)
def test_mutant_whose_marker_is_not_in_the_rows_transaction_is_caught(url, mutant, point, anomaly):
    sink = mutant("test", url, points=FaultPoints())
    publish(sink, 0, count=1)
    with sink.points.armed(Fault(point, 1)), pytest.raises(InjectedCrash):
        publish(sink, 1, count=1)
    publish(sink, 1, count=1)
    verdict = audit(expected(1, 1), read_database(url))
    assert anomaly in verdict.as_dict()["anomalies"], verdict


@pytest.mark.bench
def test_batch_that_is_written_again_is_refused_by_the_marker_itself(url):
    sink = NeverLooks("test", url)
    for number in (0, 1):
        publish(sink, number, count=1)
        with pytest.raises(BatchFailed, match=r"UNIQUE|unique|another driver"):
            publish(sink, number, count=1)
    assert audit(expected(1, 1), read_database(url)).valid


@pytest.mark.long
def test_of_two_drivers_with_the_same_batch_one_is_rolled_back(postgres):
    url, points = empty(postgres), FaultPoints()
    first, second = DatabaseSink("test", url, points=points), DatabaseSink("test", url)
    publish(first, 0, count=1)

    class SecondComesIn:
        point, batch = "before_commit", 1

        def strike(self):
            self.other = pool.submit(drained, second, batch(1), values(1, count=2))
            eventually(lambda: waiting_for_a_lock(url))

    with ThreadPoolExecutor() as pool, points.armed(late := SecondComesIn()):
        publish(first, 1, count=1)
        with pytest.raises(BatchFailed, match="another driver has published"):
            late.other.result()
    assert audit(expected(1, 1), read_database(url)).valid


def waiting_for_a_lock(url):
    with create_engine(url).connect() as connection:
        return connection.execute(text("select count(*) from pg_locks where not granted")).scalar_one()


@pytest.mark.bench
@pytest.mark.parametrize("damage", ["checkpoint deleted", "rolled back two", "rolled back one", "results deleted"])
def test_checkpoint_and_results_that_do_not_fit_are_refused(spark, broker, classroom_log, tmp_path, damage):
    points = FaultPoints()
    url, checkpoint = f"sqlite:///{tmp_path / 'results.db'}", tmp_path / "checkpoint"

    def attempt(records_per_batch=500):
        sink = DatabaseSink("ip-count", url, points=points)
        run(spark, broker, classroom_log, sink, checkpoint, records_per_batch)

    faults = [Fault("before_rows", 2)] if damage == "rolled back one" else []
    with points.armed(*faults), suppress(StreamingQueryException):
        attempt()
    before = sorted(read_database(url), key=repr)
    found = damage_checkpoint(checkpoint, damage)
    if damage == "results deleted":
        create_engine(url).connect().execute(text("drop table batch_markers"))
        found = "no marker"
    with pytest.raises(StreamingQueryException, match=f"(?s)refuses batch.*{found}"):
        attempt(records_per_batch=450)
    assert sorted(read_database(url), key=repr) == before


@pytest.mark.long
def test_marker_of_another_query_is_refused(url):
    sink = DatabaseSink("test", url)
    publish(sink, 0, count=1)
    with pytest.raises(SinkRefused, match="another query"):
        drained(sink, batch(1, "another"), ())
    with sink.engine.begin() as connection:
        connection.execute(update(MARKERS).values(batch_id=7))
    with pytest.raises(SinkRefused, match="the last batch committed is 7"):
        drained(sink, batch(1), ())


@pytest.mark.long
@pytest.mark.parametrize("batch_id", [0, 1])
def test_table_of_markers_without_plans_is_refused(url, batch_id):
    with create_engine(url).begin() as connection:
        columns = "sink VARCHAR PRIMARY KEY, batch_id BIGINT, query_id VARCHAR"
        connection.execute(text(f"CREATE TABLE batch_markers ({columns})"))
        connection.execute(text(f"INSERT INTO batch_markers VALUES ('test', 0, '{QUERY}')"))
    with pytest.raises(SinkRefused, match=rf"(?s)refuses batch {batch_id}: .*plan.*change the table"):
        publish(DatabaseSink("test", url), batch_id, count=1)
    assert read_database(url) == []


@pytest.mark.long
def test_another_batch_of_the_same_number_is_refused(url):
    sink = DatabaseSink("test", url)
    publish(sink, 0, count=1)
    for number in (0, 1):
        with pytest.raises(SinkRefused, match=r"(?s)another batch 0.*as planned 0.*otherwise 0"):
            drained(sink, batch(number, plan="otherwise"), ())


@pytest.mark.long
def test_several_sinks_share_a_database(url):
    for name in ("one", "two"):
        publish(DatabaseSink(name, url), 0, count=1)
    assert audit(expected(1), read_database(url)).duplicated == 3  # each has published its own


@pytest.mark.long
def test_table_of_ones_own(spark, publish_rows, tmp_path):
    url = f"sqlite:///{tmp_path / 'own.db'}"
    columns = (Column("who", String), Column("batch_id", BigInteger), Column("attempt", String))
    table = Table("people", MetaData(), *columns)
    rows = spark.createDataFrame([('{"who": "ann"}',), ('{"who": "bob"}',)], "value string")
    publish_rows(DatabaseSink("people", url, table), rows)
    with create_engine(url).connect() as connection:
        assert sorted(connection.execute(select(table.c.who)).scalars()) == ["ann", "bob"]


@pytest.mark.bench
@pytest.mark.parametrize("values", [(COUPON, PLAIN), (PLAIN, COUPON)], ids=["absent last", "absent first"])
def test_field_that_only_some_rows_have_is_null_in_the_others(url, values):
    columns: list[Column] = [
        Column("id", BigInteger),
        Column("coupon", String),
        Column("state", String, server_default="new"),
    ]
    columns += [Column("batch_id", BigInteger), Column("attempt", String)]
    orders = Table("orders", MetaData(), *columns)
    sink = DatabaseSink("orders", url, orders)
    orders.drop(sink.engine, checkfirst=True)
    assert not drained(sink, batch(0), values)
    with sink.engine.connect() as connection:
        found = {row.id: (row.coupon, row.state) for row in connection.execute(select(orders))}
    assert found == {1: (None, "new"), 2: ("SAVE10", "new")}


def orders_of(url, *columns) -> DatabaseSink:
    """Make a sink for a table of the columns, which is not there yet, with batch 0 in it: one row, of which id is 0."""
    columns = (Column("id", BigInteger), *columns, Column("batch_id", BigInteger), Column("attempt", String))
    orders = Table("orders", MetaData(), *columns)
    sink = DatabaseSink("orders", url, orders)
    orders.drop(sink.engine, checkfirst=True)
    write(sink, 0, '{"id": 0}')
    return sink


def write(sink, number, *values):
    assert not drained(sink, batch(number), values)


def stored(sink, *names) -> list[tuple]:
    with sink.engine.connect() as connection:
        chosen = select(*(sink.table.c[name] for name in names)).order_by(sink.table.c.id)
        return [tuple(row) for row in connection.execute(chosen)]


def made_by_hand(url, columns, *more) -> DatabaseSink:
    """Make a sink for a table `orders` that is there already, with the columns as `columns` has them in SQL."""
    sink = orders_of(url, *more)
    sink.table.drop(sink.engine)
    with sink.engine.begin() as connection:
        connection.execute(text(f"CREATE TABLE orders ({columns}, batch_id BIGINT, attempt VARCHAR(8))"))
    return DatabaseSink("orders", url, sink.table)


@pytest.mark.bench
@pytest.mark.parametrize(
    ("column", "kind", "value"),
    [
        ("n INTEGER", String, '"007"'),
        ("n NUMERIC(10,2)", Numeric(20, 4), "1.2345"),
        ("n REAL", BigInteger, "16777217"),
        ("n TIMESTAMP(0)", DateTime, '"2025-10-10T13:55:36.1234567"'),
    ],
)
def test_value_that_the_databases_own_column_would_change_is_refused(url, column, kind, value):
    sink = made_by_hand(url, f"id BIGINT, {column}", Column("n", kind))
    with pytest.raises(RowRefused, match=r"row 1: field 'n' is .* expected"):
        write(sink, 1, f'{{"id": 1, "n": {value}}}')
    assert stored(sink, "n") == []


@pytest.mark.bench
@pytest.mark.parametrize(
    ("column", "kind", "changed", "kept"),
    [
        ("VARCHAR(3)", String, '"abc "', '"abc"'),
        ("VARCHAR(3)[]", ARRAY(String), '["abcd"]', '["abc"]'),
        ("NUMERIC(10,2)[]", ARRAY(Numeric(20, 4)), "[1, null, 1.2345]", "[1, null, 1.23]"),
        ("REAL[][]", ARRAY(Numeric(20, 9), dimensions=2), "[[1.2345678]]", "[[1.25]]"),
    ],
)
def test_value_that_a_column_of_postgresql_would_change_is_refused(postgres, column, kind, changed, kept):
    sink = made_by_hand(empty(postgres), f"id BIGINT, n {column}", Column("n", kind))
    with pytest.raises(RowRefused, match=r"row 1: field 'n' is .* expected"):
        write(sink, 1, f'{{"id": 1, "n": {changed}}}')
    write(sink, 1, f'{{"id": 1, "n": {kept}}}')
    assert stored(sink, "id") == [(1,)]


@pytest.mark.bench
@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE orders SET UNLOGGED",
        "ALTER TABLE batch_markers SET UNLOGGED",
        "DROP TABLE orders; CREATE TABLE orders (LIKE old) PARTITION BY RANGE (id); "
        "CREATE UNLOGGED TABLE first PARTITION OF orders FOR VALUES FROM (0) TO (10)",
    ],
)
def test_table_that_a_crash_would_empty_is_refused(postgres, change):
    sink = made_by_hand(empty(postgres), "id BIGINT, n BIGINT", Column("n", BigInteger))
    with sink.engine.begin() as connection:
        connection.execute(text("CREATE TABLE old (LIKE orders)"))
        connection.execute(text(change))
    with pytest.raises(SinkRefused, match="is unlogged or temporary, so that a crash of the database empties it"):
        write(DatabaseSink("orders", postgres.url, sink.table), 1, '{"id": 1}')
    assert stored(sink, "id") == []


@pytest.mark.bench
def test_driver_that_a_trigger_at_the_commit_stops_was_overtaken(postgres):
    sink = made_by_hand(empty(postgres), "id BIGINT, n BIGINT", Column("n", BigInteger))
    twice = "IF (SELECT count(*) FROM orders WHERE id = new.id) > 1 THEN RAISE unique_violation; END IF; RETURN NULL;"
    with sink.engine.begin() as connection:
        connection.execute(text(f"CREATE FUNCTION once() RETURNS trigger AS $$ BEGIN {twice} END $$ LANGUAGE plpgsql"))
        connection.execute(
            text(
                "CREATE CONSTRAINT TRIGGER once AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED "
                "FOR EACH ROW EXECUTE FUNCTION once()"
            )
        )
    late = sink.transport(batch(1), ['{"id": 1}'], lambda: None)
    assert late.take("read marker").batch_id == 0
    write(DatabaseSink("orders", postgres.url, sink.table), 1, '{"id": 1}')
    with pytest.raises(BatchFailed, match="another driver has published a batch meanwhile"):
        late.take("rows")
    assert stored(sink, "id") == [(1,)]


@pytest.mark.bench
def test_url_with_which_each_statement_is_committed_is_refused(postgres):
    url = empty(postgres)
    sink = DatabaseSink("orders", f"{url}{'&' if '?' in url else '?'}autocommit=true")
    with pytest.raises(SinkRefused, match="commits each statement at once"):
        write(sink, 0, '{"window_start": 0, "ip": "10.0.0.1", "count": 1}')
    assert inspect(create_engine(url)).get_table_names() == []


@pytest.mark.bench
def test_table_that_was_made_anew_with_other_types_takes_what_these_hold(url):
    sink = made_by_hand(url, "id BIGINT, n NUMERIC(10,2)", Column("n", Numeric(20, 4)))
    with pytest.raises(RowRefused, match=r"row 1: field 'n' is .1.2345., expected"):
        write(sink, 1, '{"id": 1, "n": 1.2345}')
    sink.table.drop(sink.engine)
    with pytest.raises(BatchFailed):  # there is no table; the next batch makes it
        write(sink, 1, '{"id": 1}')
    write(sink, 1, '{"id": 1, "n": 1.2345}')
    assert len(stored(sink, "n")) == 1


@pytest.mark.bench
@pytest.mark.parametrize(
    ("columns", "value", "said"),
    [
        ("id BIGINT, n BIGINT GENERATED ALWAYS AS (2) STORED", '{"id": 1, "n": 7}', "generated column"),
        ("id BIGINT CHECK (id < 9), n BIGINT", '{"id": 9}', "(CHECK|check) constraint"),
        (
            "id BIGINT, n BIGINT REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED",
            '{"n": 7}',
            "(FOREIGN KEY|foreign key)",
        ),
    ],
    ids=["generated", "check", "deferred"],
)
def test_what_the_databases_rules_reject_is_refused_and_no_restart_advised(url, columns, value, said):
    engine = create_engine(url)
    if engine.dialect.name == "sqlite":
        event.listen(Engine, "connect", foreign_keys := lambda raw, _: raw.execute("PRAGMA foreign_keys = ON"))
    try:
        with engine.begin() as connection:
            connection.execute(text("DROP TABLE IF EXISTS orders"))
            connection.execute(text("DROP TABLE IF EXISTS parents"))
            connection.execute(text("CREATE TABLE parents (id BIGINT PRIMARY KEY)"))
        sink = made_by_hand(url, columns, Column("n", BigInteger))
        with pytest.raises(SinkRefused, match=rf"(?s)refuses batch 1: .*{said}.*(No restart|a restart alone)"):
            write(sink, 1, value)
        assert stored(sink, "id") == []
        write(sink, 1, '{"id": 1}')
        assert stored(sink, "id") == [(1,)]
        sink.table.drop(engine)
    finally:
        if engine.dialect.name == "sqlite":
            event.remove(Engine, "connect", foreign_keys)


@pytest.mark.bench
def test_row_that_a_trigger_rejects_is_named(postgres):
    sink = made_by_hand(empty(postgres), "id BIGINT, n BIGINT", Column("n", BigInteger))
    with sink.engine.begin() as connection:
        refuse = "IF new.id > 1 THEN RAISE EXCEPTION 'not above 1'; END IF; RETURN new;"
        connection.execute(
            text(f"CREATE OR REPLACE FUNCTION no() RETURNS trigger AS $$ BEGIN {refuse} END $$ LANGUAGE plpgsql")
        )
        connection.execute(text("CREATE TRIGGER no BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION no()"))
    with pytest.raises(RowRefused, match=r"rejects the row \{'id': 2\}: not above 1"):
        write(sink, 1, '{"id": 1}', '{"id": 2}')
    assert stored(sink, "id") == []


IN_SQLITE = {
    "trigger": ["CREATE TRIGGER leave_out BEFORE INSERT ON orders WHEN new.id > 1 BEGIN SELECT RAISE(IGNORE); END"],
    "view": [
        "ALTER TABLE orders RENAME TO all_orders",
        "CREATE VIEW orders AS SELECT * FROM all_orders",
        "CREATE TRIGGER leave_out INSTEAD OF INSERT ON orders BEGIN SELECT 1; END",
    ],
}
IN_POSTGRES = {
    "trigger": [
        "CREATE OR REPLACE FUNCTION leave_out() RETURNS trigger AS "
        "$$ BEGIN IF new.id > 1 THEN RETURN NULL; END IF; RETURN new; END $$ LANGUAGE plpgsql",
        "CREATE TRIGGER leave_out BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION leave_out()",
    ],
    "rule": ["CREATE RULE leave_out AS ON INSERT TO orders WHERE new.id > 1 DO INSTEAD NOTHING"],
    "rule to another table": [
        "CREATE TABLE elsewhere (LIKE orders)",
        "CREATE RULE elsewhere AS ON INSERT TO orders DO INSTEAD INSERT INTO elsewhere VALUES (new.*)",
    ],
    "view": [
        "ALTER TABLE orders RENAME TO all_orders",
        "CREATE VIEW orders AS SELECT * FROM all_orders",
        "CREATE FUNCTION nothing() RETURNS trigger AS $$ BEGIN RETURN new; END $$ LANGUAGE plpgsql",
        "CREATE TRIGGER nothing INSTEAD OF INSERT ON orders FOR EACH ROW EXECUTE FUNCTION nothing()",
    ],
    "trigger at the commit": [
        "CREATE FUNCTION forget() RETURNS trigger AS "
        "$$ BEGIN DELETE FROM orders WHERE id = new.id; RETURN NULL; END $$ LANGUAGE plpgsql",
        "CREATE CONSTRAINT TRIGGER forget AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION forget()",
    ],
    "trigger of a partition": [
        "ALTER TABLE orders RENAME TO old",
        "CREATE TABLE orders (LIKE old) PARTITION BY RANGE (id)",
        "CREATE TABLE first PARTITION OF orders FOR VALUES FROM (0) TO (10)",
        "CREATE FUNCTION undo() RETURNS trigger AS "
        "$$ BEGIN DELETE FROM first WHERE id = new.id; RETURN NULL; END $$ LANGUAGE plpgsql",
        "CREATE TRIGGER undo AFTER INSERT ON first FOR EACH ROW EXECUTE FUNCTION undo()",
    ],
}


@pytest.mark.bench
@pytest.mark.parametrize(
    ("url", "how"),
    [*(("sqlite", how) for how in IN_SQLITE), *(("postgres", how) for how in IN_POSTGRES)],
    indirect=["url"],
)
def test_rows_that_the_database_leaves_out_without_an_error_are_refused(url, how):
    sink = made_by_hand(url, "id BIGINT, n BIGINT", Column("n", BigInteger))
    with sink.engine.begin() as connection:
        for statement in (IN_SQLITE if "sqlite" in url else IN_POSTGRES)[how]:
            connection.execute(text(statement))
    row_by_row = url.startswith("sqlite") or how in ("trigger", "rule")  # there the INSERT reports what it left out
    said = r"the row \{'id': 2\}.*no error, but it has stored 0 of 1" if row_by_row else "it has stored 0 of 2 rows"
    with pytest.raises(RowRefused, match=said):
        write(sink, 1, '{"id": 2}', '{"id": 3}')
    assert stored(sink, "id") == []


@pytest.mark.bench
def test_row_that_the_tables_own_rule_for_conflicts_leaves_out_is_refused(tmp_path):
    columns = "id BIGINT UNIQUE ON CONFLICT IGNORE, n BIGINT"
    sink = made_by_hand(f"sqlite:///{tmp_path / 'results.db'}", columns, Column("n", BigInteger))
    with pytest.raises(RowRefused, match=r"the row \{'id': 1, 'n': 2\}.*no error"):
        write(sink, 1, '{"id": 1, "n": 1}', '{"id": 1, "n": 2}')
    assert stored(sink, "id") == []


AFTER_IN_SQLITE = "CREATE TRIGGER after AFTER INSERT ON orders BEGIN {} END"
AFTER_IN_POSTGRES = (
    "CREATE OR REPLACE FUNCTION after() RETURNS trigger AS $$ BEGIN {} RETURN NULL; END $$ LANGUAGE plpgsql; "
    "CREATE TRIGGER after AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION after()"
)


@pytest.mark.bench
@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize(
    ("does", "refused"),
    [
        ("DELETE FROM orders WHERE id = 2;", True),
        ("UPDATE orders SET batch_id = 0 WHERE id = 2;", True),
        ("DELETE FROM orders WHERE id = 0;", False),  # a row of an earlier batch, which was seen
        ("INSERT INTO seen SELECT new.id;", False),
    ],
)
def test_rows_that_a_trigger_deletes_are_refused_and_what_else_it_does_is_not(url, does, refused):
    sink = made_by_hand(url, "id BIGINT, n BIGINT", Column("n", BigInteger))
    after = (AFTER_IN_SQLITE if "sqlite" in url else AFTER_IN_POSTGRES).format(does)
    with sink.engine.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS seen"))
        connection.execute(text("CREATE TABLE seen (id BIGINT)"))
        connection.execute(text("INSERT INTO orders (id, batch_id, attempt) VALUES (0, 0, 'before')"))
        connection.execute(text(after))
    if refused:
        with pytest.raises(RowRefused, match="no error, but it has stored 2 of 3 rows: look for a trigger"):
            write(sink, 1, '{"id": 1}', '{"id": 2}', '{"id": 3}')
        assert stored(sink, "id") == [(0,)]
    else:
        write(sink, 1, '{"id": 1}', '{"id": 2}', '{"id": 3}')
        assert stored(sink, "id")[-3:] == [(1,), (2,), (3,)]


@pytest.mark.bench
def test_table_whose_new_rows_replace_earlier_ones_is_refused(tmp_path):
    columns = "id BIGINT UNIQUE on conflict\n replace, n BIGINT"
    with pytest.raises(SinkRefused, match="ON CONFLICT REPLACE, by which a new row deletes an earlier result"):
        write(made_by_hand(f"sqlite:///{tmp_path / 'results.db'}", columns, Column("n", BigInteger)), 1, '{"id": 1}')


@pytest.mark.bench
def test_rows_that_a_trigger_puts_into_a_part_of_the_table_count(postgres):
    """As PostgreSQL's partitions by inheritance: the INSERT reports no row, and they are all there."""
    sink = made_by_hand(empty(postgres), "id BIGINT, n BIGINT", Column("n", BigInteger))
    into = "INSERT INTO part SELECT new.*; RETURN NULL;"
    with sink.engine.begin() as connection:
        connection.execute(text("CREATE TABLE part () INHERITS (orders)"))
        connection.execute(
            text(f"CREATE OR REPLACE FUNCTION part() RETURNS trigger AS $$ BEGIN {into} END $$ LANGUAGE plpgsql")
        )
        connection.execute(text("CREATE TRIGGER part BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION part()"))
    try:
        write(sink, 1, '{"id": 1}', '{"id": 2}')
        assert stored(sink, "id") == [(1,), (2,)]
    finally:
        with sink.engine.begin() as connection:
            connection.execute(text("DROP TABLE orders CASCADE"))


@pytest.mark.bench
def test_what_is_not_granted_yet_is_no_refusal(postgres):
    sink = made_by_hand(empty(postgres), "id BIGINT, n BIGINT", Column("n", BigInteger))
    with sink.engine.begin() as connection:
        connection.execute(text("DROP OWNED BY clerk" if has_role(connection) else "CREATE ROLE clerk LOGIN"))
        connection.execute(text("GRANT SELECT ON orders TO clerk; GRANT ALL ON batch_markers TO clerk"))
    theirs = DatabaseSink("orders", postgres.url.replace("postgres@", "clerk@"), sink.table)
    with pytest.raises(BatchFailed, match="permission denied"):
        write(theirs, 1, '{"id": 1}')
    with sink.engine.begin() as connection:
        connection.execute(text("GRANT ALL ON orders TO clerk"))
    write(theirs, 1, '{"id": 1}')
    assert stored(sink, "id") == [(1,)]


def has_role(connection) -> bool:
    return bool(connection.execute(text("SELECT 1 FROM pg_roles WHERE rolname = 'clerk'")).one_or_none())


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///{}/results.db",
        "sqlite:///file:{}/results.db?uri=true",
        "sqlite:///file://{}/results.db?uri=true&mode=rwc",
        "sqlite:///file:{}/r%65sults.db?uri=true",
        "sqlite:///{}/link.db",
        "sqlite:///file:{}/link.db?uri=true",
        "sqlite:///{}/hard.db",
        "sqlite+pysqlite:///{}/./results.db",
    ],
)
def test_one_file_is_one_place_whatever_its_url(tmp_path, url):
    (tmp_path / "link.db").symlink_to("results.db")
    (first := DatabaseSink("orders", f"sqlite:///{tmp_path}/results.db")).markers_id()
    (tmp_path / "hard.db").hardlink_to(tmp_path / "results.db")
    assert DatabaseSink("orders", url.format(tmp_path)).place(batch(0)) == first.place(batch(0))
    assert DatabaseSink("orders", f"sqlite:///{tmp_path}/other.db").place(batch(0)) != first.place(batch(0))


@pytest.mark.bench
@pytest.mark.parametrize(
    "other",
    [
        "postgresql+psycopg://postgres@/postgres?application_name=x&host={}",
        "postgresql+psycopg://postgres:ignored@/postgres?host={}&port=5432",
        "postgresql+psycopg:///?host={}&user=postgres&dbname=postgres",
        "postgresql+psycopg://postgres@/postgres?host={}/../{}",
    ],
)
def test_one_server_is_one_place_whatever_its_url(postgres, other):
    url = other.format(postgres.directory, postgres.directory.name)
    first, second = DatabaseSink("orders", postgres.url), DatabaseSink("orders", url)
    assert first.place(batch(0)) == second.place(batch(0))


DEFAULTS = {"the database's": {"server_default": "1"}, "SQLAlchemy's": {"default": 1}, "called": {"default": lambda: 1}}


@pytest.mark.bench
@pytest.mark.parametrize("default", DEFAULTS.values(), ids=DEFAULTS)
@pytest.mark.parametrize("in_order", [1, -1])
def test_optional_field_of_a_column_with_a_default_keeps_its_value(url, default, in_order):
    sink = orders_of(url, Column("quantity", Integer, nullable=False, **default))
    write(sink, 1, *['{"id": 1}', '{"id": 2, "quantity": 5}', '{"id": 3}'][::in_order])
    assert stored(sink, "id", "quantity") == [(0, 1), (1, 1), (2, 5), (3, 1)]


@pytest.mark.bench
def test_numbers_are_stored_exactly(url):
    sink = orders_of(url, Column("price", Numeric(20, 2)), Column("ratio", Float))
    value = '{"id": %d, "price": 123456789012345678.91, "ratio": 0.1}'
    if url.startswith("sqlite"):
        with pytest.raises(SinkRefused, match=r"'price' is .*expected a number of up to 15 digits"):
            write(sink, 1, value % 2)
        value = value.replace("456789012345678", "4567890")
    write(sink, 1, '{"id": 1, "price": -0.0}', value % 2)
    [_, (zero, _), (price, ratio)] = stored(sink, "price", "ratio")
    assert (zero, price, ratio) == (0, Decimal(value.split()[3][:-1]), 0.1)


STRANGE = ["select", 'a "quoted" name', "a'b", "a b", "a%b%(c)s", "a:b", "a.b", "größe", "Id"]


@pytest.mark.bench
def test_columns_may_have_any_name(url):
    sink = orders_of(url, *(Column(name, Integer) for name in STRANGE if name != "Id" or "sqlite" not in url))
    fields = {name: n for n, name in enumerate(sink.table.columns.keys()[1:-2])}
    write(sink, 1, json.dumps({"id": 1} | fields))
    assert stored(sink, *fields)[1] == tuple(fields.values())


@pytest.mark.bench
@pytest.mark.parametrize(
    ("value", "match"),
    [
        ('{"id": 9223372036854775808}', "row 2: field 'id' is 9223372036854775808, expected an integer of up to 64"),
        ('{"id": 1, "name": "\\ud800"}', "row 2: field 'name' is .*lone surrogate"),
        ('{"id": 1, "name": "\\u0000"}', "row 2: field 'name' is .*NUL"),
        ('{"id": 1, "colour": "red"}', "row 2: 'colour' is not a column of table 'orders'"),
        ('{"id": 1, "batch_id": 7}', "row 2: field 'batch_id' is 7.*the sink fills the column itself"),
        ("[1]", "row 2: it is not a JSON object"),
        ("{", "row 2: .*the row is '{'"),
        ('{"id": 1, "stock": -1}', "the database rejects the row .*'stock': -1.*CHECK|check"),
        ('{"id": 1, "stock": null}', "field 'stock' is null, expected a value"),
        ('{"id": 1, "code": "A"}', "the database rejects the row .*'code': 'A'.*(UNIQUE|unique)"),
    ],
)
def test_row_that_can_never_be_stored_is_refused_by_name_and_nothing_is_lost(url, value, match):
    sink = orders_of(
        url,
        Column("name", String),
        Column("stock", Integer, CheckConstraint("stock >= 0"), nullable=False, server_default="7"),
        Column("code", String, unique=True),
    )
    write(sink, 1, '{"id": 1, "code": "A"}')
    for _ in range(2):
        with pytest.raises(RowRefused, match=f"(?s)refuses batch 2.*{match}.*Nothing of the batch is published"):
            write(sink, 2, '{"id": 2}', value, '{"id": 3}')
    assert stored(sink, "id") == [(0,), (1,)]
    write(sink, 2, '{"id": 2}')  # the query was mended
    assert stored(sink, "id", "batch_id") == [(0, 0), (1, 1), (2, 2)]


@pytest.mark.bench
def test_row_without_a_value_that_the_table_needs_is_refused(url):
    sink = orders_of(url, Column("name", String))
    with sink.engine.begin() as connection:
        connection.execute(text("ALTER TABLE orders ADD COLUMN needed INTEGER NOT NULL DEFAULT 1"))
        if not url.startswith("sqlite"):
            connection.execute(text("ALTER TABLE orders ALTER COLUMN needed DROP DEFAULT"))
            connection.execute(text("ALTER TABLE orders ALTER COLUMN name TYPE VARCHAR(3)"))
    if url.startswith("sqlite"):
        write(sink, 1, '{"id": 1, "name": "four"}')
        assert stored(sink, "name") == [(None,), ("four",)]
        return
    with pytest.raises(RowRefused, match=r"rejects the row .*'id': 1.*needed"):
        write(sink, 1, '{"id": 1}')
    with sink.engine.begin() as connection:
        connection.execute(text("ALTER TABLE orders ALTER COLUMN needed SET DEFAULT 1"))
    with pytest.raises(RowRefused, match=r"rejects the row .*'name': 'four'.*too long"):
        write(sink, 1, '{"id": 1, "name": "one"}', '{"id": 2, "name": "four"}')
    assert stored(sink, "id") == [(0,)]


@pytest.mark.bench
def test_rows_that_only_together_are_rejected_are_refused(url):
    sink = orders_of(url, Column("code", String, unique=True), Column("name", String))
    with pytest.raises(RowRefused, match=r"the database rejects the row .*'id': 2.*(UNIQUE|unique)"):
        write(sink, 1, '{"id": 1, "code": "A"}', '{"id": 2, "code": "A"}')
    with pytest.raises(RowRefused, match=r"the database rejects a row: .*(UNIQUE|unique)"):  # by another statement
        write(sink, 1, '{"id": 1, "code": "A"}', '{"id": 2, "code": "A", "name": "ann"}')
    assert stored(sink, "id") == [(0,)]


@pytest.mark.bench
def test_table_of_an_older_version_that_lacks_a_column_is_refused_until_it_has_it(url):
    old = orders_of(url)
    columns = [Column(name, kind) for name, kind in (("id", BigInteger), ("name", String), ("batch_id", BigInteger))]
    sink = DatabaseSink("orders", url, Table("orders", MetaData(), *columns, Column("attempt", String)))
    with pytest.raises(SinkRefused, match=r"'orders' in the database has no column 'name'.*ALTER TABLE"):
        write(sink, 1, '{"id": 1}')
    with old.engine.begin() as connection:
        connection.execute(text("ALTER TABLE orders ADD COLUMN name VARCHAR"))
    write(sink, 1, '{"id": 1, "name": "ann"}')
    assert stored(sink, "id", "name") == [(0, None), (1, "ann")]


@pytest.mark.bench
def test_many_rows_of_many_kinds_are_each_stored_once(url):
    sink = orders_of(url, Column("a", Integer, server_default="7"), Column("b", Integer))
    values = [json.dumps({"id": n} | {name: n for k, name in enumerate("ab") if n >> k & 1}) for n in range(1, 25_000)]
    write(sink, 1, *values)
    with sink.engine.connect() as connection:
        counted = select(func.count(), func.count(func.distinct(sink.table.c.id)), func.count(sink.table.c.b))
        assert connection.execute(counted).one() == (25_000, 25_000, 12_500)
    assert stored(sink, "a")[:4] == [(7,), (1,), (7,), (3,)]


def test_database_that_is_away_fails_the_batch(tmp_path):
    nowhere = DatabaseSink("test", f"postgresql+psycopg://postgres@/postgres?host={tmp_path}")
    with pytest.raises(BatchFailed, match="the database said"):
        drained(nowhere, batch(0), ())


@pytest.mark.long
def test_locked_database_fails_the_batch_and_keeps_nothing_of_it(tmp_path):
    url = f"sqlite:///{tmp_path / 'locked.db'}?timeout=0.1"
    sink = DatabaseSink("test", url)
    publish(sink, 0, count=1)
    with create_engine(url).begin() as somebody_else:
        somebody_else.execute(insert(MARKERS).values(sink="somebody", batch_id=0, query_id="", plan=""))
        with pytest.raises(BatchFailed, match="locked"):
            publish(sink, 1, count=1)
    publish(sink, 1, count=1)
    assert audit(expected(1, 1), read_database(url)).valid


def publish(sink, batch_id, count):
    """Do what a batch does, without a Spark."""
    drained(sink, batch(batch_id), values(batch_id, count))


def test_driver_that_was_overtaken_by_other_plans_publishes_nothing(url):
    """It has looked at the marker, and sleeps; meanwhile marker and results are restored, and others go on."""
    first, other = DatabaseSink("test", url), DatabaseSink("test", url)
    for number in range(3):
        publish(first, number, count=1)

    def meanwhile(point: str, batch_id: int) -> None:
        if (point, batch_id) == ("before_rows", 3):
            with first.engine.begin() as restored:
                restored.execute(IP_COUNT.delete().where(IP_COUNT.c.batch_id == 2))
                restored.execute(
                    update(MARKERS).where(MARKERS.c.sink == "test").values(batch_id=1, plan="as planned 1")
                )
            drained(other, Batch(QUERY, 2, "otherwise 2", "as planned 1"), values(2, count=2))

    with pytest.raises(BatchFailed, match="another driver has published"):
        publish(DatabaseSink("test", url, points=meanwhile), 3, count=1)
    assert audit(expected(1, 1, 2), read_database(url)).valid


def test_rows_that_another_driver_has_published_are_not_called_bad(url):
    """A unique key rejects them, although nothing is wrong with them."""
    sink = orders_of(url, Column("code", String, unique=True))
    other = DatabaseSink("orders", url, sink.table)
    rows = ['{"id": 1, "code": "A"}']

    def meanwhile(point: str, batch_id: int) -> None:
        if point == "before_rows":
            drained(other, batch(1), rows)

    sink.points = meanwhile
    with pytest.raises(BatchFailed, match="another driver has published"):
        drained(sink, batch(1), rows)
    sink.points = pass_by
    assert drained(sink, batch(1), rows)


def test_tables_that_another_process_makes_at_the_same_time_are_used(url, monkeypatch):
    """Two jobs begin on an empty database: each finds no table."""
    METADATA.create_all(create_engine(url))
    real, missing = Table.create, [MARKERS.name, IP_COUNT.name]

    def create(table, bind, checkfirst=False):
        checked = checkfirst and table.name not in missing
        missing[:] = [name for name in missing if name != table.name]
        return real(table, bind, checkfirst=checked)

    monkeypatch.setattr(Table, "create", create)
    publish(DatabaseSink("test", url), 0, count=1)
    assert missing == []
    assert audit(expected(1), read_database(url)).valid
