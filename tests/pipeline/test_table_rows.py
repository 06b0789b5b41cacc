"""JSON objects as rows of a table: exactly, or refused with the field, what it is, and what was expected."""

from __future__ import annotations

import datetime
import json
import uuid
from decimal import Decimal
from types import FunctionType

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from labs.pipeline.sinks.table_rows import TableRows, alike, numbered

SQLITE, POSTGRES = sqlite.dialect(), postgresql.dialect()
BOTH = pytest.mark.parametrize("dialect", [SQLITE, POSTGRES], ids=["sqlite", "postgres"])
OWN = ("batch_id",)


def rows_of(dialect=POSTGRES, **types):
    columns = [kind() if isinstance(kind, FunctionType) else sa.Column(name, kind) for name, kind in types.items()]
    return TableRows(sa.Table("orders", sa.MetaData(), *columns, sa.Column("batch_id", sa.BigInteger)), dialect, OWN)


def refused(value, match, dialect=POSTGRES, **types):
    with pytest.raises(ValueError, match=match) as refusal:
        rows_of(dialect, **types).row(value)
    assert len(str(refusal.value)) < 700
    return str(refusal.value)


@BOTH
@pytest.mark.parametrize(
    ("kind", "text", "stored"),
    [
        (sa.BigInteger, "9223372036854775807", 2**63 - 1),
        (sa.Integer, "-0", 0),
        (sa.Integer, "2.0", 2),
        (sa.Integer, "1e3", 1000),
        (sa.Float, "0.1", 0.1),
        (sa.Double, "-0.0", 0.0),
        (sa.Float, "7", 7.0),
        (sa.Numeric(20, 2), "1234567890123.91", Decimal("1234567890123.91")),
        (sa.Numeric(5, 2), "999.990", Decimal("999.99")),
        (sa.Numeric(5, 2), "0.000", Decimal(0)),
        (sa.Numeric, "0.1", Decimal("0.1")),
        (sa.String(6), '"größe\\u2028"', "größe\u2028"),
        (sa.Text, '"\\ud83d\\ude00"', "\N{GRINNING FACE}"),
        (sa.Boolean, "true", True),
        (sa.Date, '"2025-10-10"', datetime.date(2025, 10, 10)),
        (sa.DateTime, '"2025-10-10T13:55:36.123456"', datetime.datetime(2025, 10, 10, 13, 55, 36, 123456)),
        (sa.Time, '"13:55:36"', datetime.time(13, 55, 36)),
        (sa.LargeBinary, '"AP8="', b"\x00\xff"),
        (sa.Uuid, '"00000000-0000-0000-0000-000000000007"', uuid.UUID(int=7)),
        (sa.Enum("new", "old", name="state"), '"old"', "old"),
        (sa.JSON, '{"a": [1, 0.5, null, {"b": "c"}]}', {"a": [1, 0.5, None, {"b": "c"}]}),
    ],
)
def test_field_is_stored_as_its_columns_type(dialect, kind, text, stored):
    found = rows_of(dialect, f=kind).row(f'{{"f": {text}}}')["f"]
    assert found == stored
    assert type(found) is type(stored)


def test_decimal_of_twenty_digits_is_stored_exactly_where_the_database_can():
    value, kind = '{"f": 123456789012345678.91}', sa.Numeric(20, 2)
    assert rows_of(POSTGRES, f=kind).row(value) == {"f": Decimal("123456789012345678.91")}
    refused(value, "field 'f' is .*expected a number of up to 15 digits", SQLITE, f=kind)


@BOTH
@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (sa.BigInteger, "9223372036854775808", "64 bits"),
        (sa.BigInteger, "-9223372036854775809", "64 bits"),
        (sa.BigInteger, "1e400", "an integer"),
        (sa.BigInteger, "1e999999999", "an integer"),
        (sa.Integer, "1.5", "an integer"),
        (sa.Integer, '"7"', "an integer"),
        (sa.Integer, "true", "an integer"),
        (sa.Integer, "[7]", "an integer"),
        (sa.Float, "1e400", "up to 1.8e308"),
        (sa.Float, '"NaN"', "a number"),
        (sa.Numeric(5, 2), "0.001", "2 decimal places"),
        (sa.Numeric(5, 2), "1000", "5 digits"),
        (sa.Numeric(5, 2), "1e999999", "5 digits"),
        (sa.Numeric(5, 2), '"1.00"', "a number"),
        (sa.Numeric(5, 2), "false", "a number"),
        (sa.String, "7", "text"),
        (sa.String, '{"a": 1}', "text"),
        (sa.String, '"a\\u0000b"', "NUL"),
        (sa.String, '"\\ud800"', "lone surrogate"),
        (sa.Boolean, "1", "true or false"),
        (sa.Boolean, '"true"', "true or false"),
        (sa.Date, '"10/Oct/2025"', "a date such as"),
        (sa.DateTime, "1760104536", "a time such as"),
        (sa.DateTime, '"2025-10-10T13:55:36Z"', "timestamp_ntz"),
        (sa.LargeBinary, '"no base 64!"', "base64"),
        (sa.Uuid, '"7"', "a UUID"),
        (sa.Enum("new", "old", name="state"), '"other"', "one of 'new', 'old'"),
        (sa.JSON, '{"a": "\\u0000"}', "NUL"),
        (sa.JSON, '{"a": 0.12345678901234567890123}', "15 digits"),
        (lambda: sa.Column("f", sa.String, nullable=False), "null", "NOT NULL"),
        (lambda: sa.Column("f", sa.Integer, sa.Computed("1 + 1")), "2", "the database fills the column itself"),
        (lambda: sa.Column("f", sa.Integer, sa.Identity(always=True)), "2", "the database fills the column itself"),
    ],
)
def test_field_that_the_column_cannot_hold_exactly_is_refused(dialect, kind, text, expected):
    said = refused(f'{{"f": {text}}}', f"field 'f' is .*expected .*{expected}", dialect, f=kind)
    assert "the row is" in said


def test_time_zone_is_neither_dropped_nor_guessed():
    kind, aware = sa.DateTime(timezone=True), '{"f": "2025-10-10T15:55:36+02:00"}'
    assert rows_of(POSTGRES, f=kind).row(aware)["f"].utcoffset() == datetime.timedelta(hours=2)
    refused('{"f": "2025-10-10T13:55:36"}', "with its zone", POSTGRES, f=kind)
    refused(aware, "SQLite keeps none", SQLITE, f=kind)


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (postgresql.TIMESTAMP(precision=0), "2025-10-10T13:55:36.7", "up to 0 decimal places"),
        (postgresql.TIMESTAMP(precision=3), "2025-10-10T13:55:36.1234", "up to 3 decimal places"),
        (postgresql.TIME(precision=0), "13:55:36.7", "up to 0 decimal places"),
        (sa.DateTime, "2025-10-10T13:55:36.1234567", "up to 6 decimal places"),
        (sa.DateTime, "2025-10-10T13:55:36,1234567", "up to 6 decimal places"),
        (sa.Time, "13:55:36.1234567", "up to 6 decimal places"),
        (sa.String(2), "ab   ", "up to 2 characters"),
    ],
)
def test_what_the_database_would_round_or_cut_off_is_refused(kind, text, expected):
    refused(f'{{"f": "{text}"}}', expected, f=kind)


def test_zeros_behind_a_second_are_nothing_to_round():
    rows = rows_of(f=postgresql.TIMESTAMP(precision=0), g=sa.DateTime)
    assert rows.row('{"f": "2025-10-10T13:55:36.000", "g": "2025-10-10T13:55:36.123456000"}')


@pytest.mark.parametrize(
    ("declared", "found", "text", "expected"),
    [
        (sa.Numeric(20, 4), sa.NUMERIC(10, 2), "1.2345", r"2 decimal places: the database has .* NUMERIC\(.*scale=2\)"),
        (sa.Numeric(20, 4), sa.INTEGER(), "1.5", "an integer: the database has the column as INTEGER"),
        (sa.Numeric(20, 4), sa.REAL(), "16777217.25", "up to 6 digits.*: the database has the column as REAL"),
        (sa.Numeric(20, 4), sa.DOUBLE_PRECISION(), "1234567890123456.1234", "up to 15 digits"),
        (sa.BigInteger, sa.REAL(), "16777217", "up to 6 digits"),
        (sa.BigInteger, sa.TEXT(), "7", "text: the database has the column as TEXT"),
        (sa.String, sa.INTEGER(), '"007"', "an integer: the database has the column as INTEGER"),
        (sa.String, sa.NUMERIC(), '"1.10"', "a number: the database has the column as NUMERIC"),
        (sa.DateTime, postgresql.TIMESTAMP(precision=0), '"2025-10-10T13:55:36.7"', "up to 0 decimal places"),
        (sa.DateTime, sa.DATE(), '"2025-10-10T13:55:36"', "a date such as"),
        (sa.DateTime, postgresql.TIMESTAMP(timezone=True), '"2025-10-10T13:55:36"', "a time with its zone"),
    ],
    ids=str,
)
def test_column_that_the_database_has_as_another_type_must_hold_the_field_too(declared, found, text, expected):
    rows = rows_of(f=declared)
    assert rows.row(f'{{"f": {text}}}')
    rows.stored_as({"f": found})
    with pytest.raises(ValueError, match=f"field 'f' is .*, expected .*{expected}"):
        rows.row(f'{{"f": {text}}}')


@pytest.mark.parametrize(
    ("declared", "found", "text"),
    [
        (sa.Numeric(20, 4), sa.NUMERIC(10, 2), "1.2500"),
        (sa.Numeric(20, 4), sa.REAL(), "0.1"),
        (sa.Numeric(20, 4), sa.INTEGER(), "2.000"),
        (sa.Float, sa.REAL(), "16777217"),
        (sa.Integer, sa.BIGINT(), "7"),
        (sa.String(5), sa.TEXT(), '"abc"'),
        (sa.JSON, sa.TEXT(), "[1]"),
        (sa.String, sa.types.NullType(), '"abc"'),
        (sa.DateTime, sa.TEXT(), '"2025-10-10T13:55:36.5"'),
        (sa.Boolean, sa.BOOLEAN(), "true"),
        (sa.Uuid, sa.CHAR(32), '"00000000-0000-0000-0000-000000000007"'),
        (sa.Enum("new", "old", name="state"), sa.VARCHAR(3), '"old"'),
    ],
    ids=str,
)
def test_column_that_the_database_has_as_another_type_that_holds_the_field_is_as_good(declared, found, text):
    rows = rows_of(SQLITE, f=declared)
    rows.stored_as({"f": found})
    assert rows.row(f'{{"f": {text}}}')


def test_array_is_taken_item_by_item():
    rows = rows_of(POSTGRES, f=sa.ARRAY(sa.Numeric(5, 2)))
    assert rows.row('{"f": [1.5, null]}') == {"f": [Decimal("1.5"), None]}
    refused('{"f": [0.001]}', "2 decimal places", f=sa.ARRAY(sa.Numeric(5, 2)))
    refused('{"f": 7}', "an array", f=sa.ARRAY(sa.Integer))
    refused('{"f": ["abcd"]}', "up to 3 characters", f=sa.ARRAY(sa.String(3)))
    refused('{"f": [[], []]}', "an empty array in it", f=sa.ARRAY(sa.Integer, dimensions=2))
    assert rows_of(POSTGRES, f=sa.ARRAY(sa.Integer)).row('{"f": []}') == {"f": []}


def test_number_that_sqlite_would_round_in_a_json_column_is_refused():
    refused('{"f": 18446744073709551616}', "64 bits", SQLITE, f=sa.JSON)
    for dialect, value in ((POSTGRES, 2**64), (SQLITE, [2**64]), (SQLITE, True), (SQLITE, 7)):
        assert rows_of(dialect, f=sa.JSON).row(json.dumps({"f": value})) == {"f": value}


def test_column_of_a_type_that_the_sink_does_not_know_is_not_compared():
    price = postgresql.DOMAIN("price", sa.NUMERIC())
    zoned, prices = sa.DateTime(timezone=True), sa.ARRAY(sa.Numeric(5, 2))
    rows = rows_of(POSTGRES, f=zoned, g=prices)
    rows.stored_as({"f": price, "g": sa.ARRAY(price)})
    assert rows.row('{"f": "2025-10-10T13:55:36Z", "g": [1.5]}')


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ("", "Expecting value"),
        ("no JSON", "Expecting value"),
        ('{"id": 1', "the row is"),
        ('{"id": 1} {"id": 2}', "Extra data"),
        ("[1]", "not a JSON object"),
        ("null", "not a JSON object"),
        ("7", "not a JSON object"),
        ('{"id": NaN}', "NaN is not a number"),
        ('{"id": -Infinity}', "-Infinity is not a number"),
        ('{"id": 1, "id": 2}', "'id' is there twice"),
        ('{"ID": 1}', r"'ID' is not a column of table 'orders', which has id \("),
        ('{"id": 1, "quantity": 2}', "'quantity' is not a column"),
        ('{"batch_id": 7}', "'batch_id'.*the sink fills the column itself"),
        ('{"\\ud800": 7}', "is not a column"),
        ('{"id": 1e9999999999999999999999}', "the row is"),
        ('{"id": ' + "9" * 5000 + "}", "the row is"),
        ('{"id": ' + "[" * 100_000 + "]" * 100_000 + "}", "the row is"),
    ],
    ids=lambda text: text[:30],
)
def test_value_that_is_no_row_is_refused(value, match):
    refused(value, match, id=sa.BigInteger)


def test_row_is_said_by_its_number():
    with pytest.raises(ValueError, match=r"row 2: .*\{\"id\": true\}"):
        list(numbered(['{"id": 1}', '{"id": true}'], rows_of(id=sa.BigInteger)))


def test_absent_fields_are_left_to_the_database():
    rows = rows_of(id=sa.BigInteger, coupon=sa.String)
    made = [rows.row(value) for value in ('{"id": 1}', '{"coupon": "A", "id": 2}', '{"id": 3, "coupon": null}', "{}")]
    assert made == [{"id": 1}, {"id": 2, "coupon": "A"}, {"id": 3, "coupon": None}, {}]
    assert alike(made) == [[made[0]], [made[1], made[2]], [made[3]]]


def test_column_may_have_another_key():
    table = sa.Table(
        "t", sa.MetaData(), sa.Column("who is it", sa.String, key="who"), sa.Column("batch_id", sa.Integer)
    )
    assert TableRows(table, POSTGRES, OWN).row('{"who is it": "ann"}') == {"who": "ann"}


def test_table_without_the_sinks_own_column_is_refused():
    with pytest.raises(ValueError, match="'t' has no column 'batch_id'"):
        TableRows(sa.Table("t", sa.MetaData(), sa.Column("who", sa.String)), POSTGRES, OWN)
