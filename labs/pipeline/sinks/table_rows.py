"""Turns a JSON object into a row of a table: each field exactly as its column's type, or a ValueError says why not.

Fields are those that Spark's to_json writes: dates and timestamps as ISO text, binary as base64, a null as a missing
field. What a column cannot hold exactly is refused: an unknown field, a decimal with more places than the column, a
text with a NUL, parts of a second that it would round. Only a Float column takes the nearest number. If the column has
another type in the database, the field must fit that type, too. Everything else is left to the database to reject.

Limitation: nothing is compared if the database's column is a domain, or has a type that is not in `CONVERT`, such as
MONEY in PostgreSQL. Such a column may round a number unnoticed.
"""

from __future__ import annotations

import base64
import datetime
import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from exactly_once_kafka.names import is_whole

Row = dict[str, Any]
SHOWN = 200  # characters of a row, or of a field, in a message
SINGLE, DOUBLE = 6, 15  # decimal digits that a float of 32 bits, and of 64, keeps
MICROSECONDS = 6  # decimal places of a second


class TableRows:
    """Makes rows of one table, in one kind of database. `own` are the columns that the sink fills itself."""

    def __init__(self, table: sa.Table, dialect: sa.Dialect, own: Sequence[str]):
        for name in own:
            if name not in table.columns:
                raise ValueError(f"table {table.name!r} has no column {name!r}, which the sink fills itself: add it")
        self._table, self._dialect, self._own = table, dialect, own
        self._columns = {column.name: column for column in table.columns}
        self._otherwise: dict[str, sa.types.TypeEngine[Any]] = {}

    def stored_as(self, types: dict[str, sa.types.TypeEngine[Any]]) -> None:
        """Note the types that the database has for the columns, by their names in lower case.

        If one differs from the table's, the database may silently round a number or change a text.
        """
        self._otherwise = {}
        for name, column in self._columns.items():
            kind = types.get(name.lower(), column.type)
            if isinstance(column.type, sa.Uuid) and isinstance(kind, sa.String):
                continue  # its text is another one than the field's
            if None not in (_traits(kind), _traits(column.type)) and _traits(kind) != _traits(column.type):
                self._otherwise[name] = kind

    def row(self, value: str) -> Row:
        """Return the fields to insert for a value. Raises ValueError."""
        try:
            fields = _parsed(value)
            unknown = [name for name in fields if name not in self._columns]
            if unknown:
                has = ", ".join(name for name in self._columns if name not in self._own)
                names = ", ".join(map(repr, unknown))
                raise ValueError(f"{names} is not a column of table {self._table.name!r}, which has {has}")
            return {self._columns[name].key: self._converted(name, field) for name, field in fields.items()}
        except (ValueError, ArithmeticError, RecursionError) as error:
            raise ValueError(f"{error} (the row is {value!r:.{SHOWN}})") from None

    def _converted(self, name: str, field: Any) -> Any:
        column = self._columns[name]
        try:
            if name in self._own:
                raise ValueError("no such field, because the sink fills the column itself")
            if column.computed is not None or (column.identity is not None and column.identity.always):
                raise ValueError("no such field, because the database fills the column itself")
            if field is None:
                if not column.nullable:
                    raise ValueError("a value, because the column is NOT NULL")
                return None
            converted = self._convert(column.type, field)
            if name in self._otherwise:
                self._check_stored(self._otherwise[name], field)
            return converted
        except (ValueError, ArithmeticError) as error:
            shown = json.dumps(field, default=str)
            raise ValueError(f"field {name!r} is {shown:.{SHOWN}}, expected {error}") from None

    def _check_stored(self, kind: sa.types.TypeEngine[Any], field: Any) -> None:
        try:
            self._convert(kind, field, exactly=True)
        except ValueError as error:
            raise ValueError(f"{error}: the database has the column as {kind!r}") from None

    def _convert(self, kind: sa.types.TypeEngine[Any], field: Any, exactly: bool = False) -> Any:
        """Convert a field; `exactly` refuses a number that a Float column would round."""
        if convert := _converter(kind):
            converted = convert(kind, field, self._dialect)
            if exactly and isinstance(kind, sa.Float):
                _exact_float(_decimal(field), SINGLE if isinstance(kind, sa.REAL) else DOUBLE)
            return converted
        if isinstance(kind, sa.ARRAY):
            if not isinstance(field, list):
                raise ValueError("an array")
            return [self._item(kind, item, exactly) for item in field]
        if isinstance(kind, sa.JSON) and isinstance(field, int) and self._dialect.name == "sqlite":
            return field if isinstance(field, bool) else _integer(kind, field, self._dialect)  # else it becomes a float
        return _plain(kind, field, self._dialect)

    def _item(self, array: sa.ARRAY[Any], item: Any, exactly: bool) -> Any:
        if item is None:
            return None
        if item == []:
            raise ValueError("an array without an empty array in it, because databases do not keep that")
        kind = array if isinstance(item, list) else array.item_type  # an array may have arrays
        return self._convert(kind, item, exactly)


def alike(rows: Iterable[Row]) -> list[list[Row]]:
    """Group rows that have the same columns: an INSERT takes the columns of its first row for all of its rows."""
    groups: dict[frozenset[str], list[Row]] = {}
    for row in rows:
        groups.setdefault(frozenset(row), []).append(row)
    return list(groups.values())


def _parsed(value: str) -> Row:
    fields = json.loads(value, parse_float=Decimal, parse_constant=_no_number, object_pairs_hook=_each_once)
    if not isinstance(fields, dict):
        raise ValueError("it is not a JSON object, and each row must be one")
    return fields


def _each_once(pairs: list[tuple[str, Any]]) -> Row:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        twice = next(name for n, (name, _) in enumerate(pairs) if name in dict(pairs[:n]))
        raise ValueError(f"field {twice!r} is there twice")
    return fields


def _no_number(constant: str) -> Any:
    raise ValueError(f"{constant} is not a number in JSON, nor in every database")


def _integer(kind: sa.types.TypeEngine[Any], field: Any, dialect: sa.Dialect) -> int:
    if isinstance(field, Decimal) and field.adjusted() < 20 and field == field.to_integral_value():
        field = int(field)
    if not isinstance(field, int) or isinstance(field, bool):
        raise ValueError("an integer")
    if not -(2**63) <= field < 2**63:
        raise ValueError("an integer of up to 64 bits")
    return field


def _decimal(field: Any) -> Decimal:
    if isinstance(field, Decimal):
        return field
    if not isinstance(field, int) or isinstance(field, bool):
        raise ValueError("a number")
    return Decimal(field)


def _float(kind: sa.types.TypeEngine[Any], field: Any, dialect: sa.Dialect) -> float:
    number = float(_decimal(field))
    if number in (float("inf"), float("-inf")):
        raise ValueError("a number of up to 1.8e308")
    return number


def _exact_float(number: Decimal, digits: int = DOUBLE) -> float:
    nearest = float(number)
    inexact = nearest in (float("inf"), float("-inf")) or Decimal(repr(nearest)) != number
    if inexact or (digits < DOUBLE and len(number.normalize().as_tuple().digits) > digits):
        raise ValueError(f"a number of up to {digits} digits, because it is stored as a float: make the column a text")
    return nearest


def _numeric(kind: Any, field: Any, dialect: sa.Dialect) -> Decimal | float:
    number = _decimal(field)
    if kind.scale is not None and _places(number) > kind.scale:
        raise ValueError(f"a number with up to {kind.scale} decimal places")
    if kind.precision is not None and number and number.adjusted() + 1 > kind.precision - (kind.scale or 0):
        raise ValueError(f"a number of up to {kind.precision} digits, {kind.scale or 0} of them decimal places")
    if dialect.name == "sqlite":
        _exact_float(number)
    return number


def _places(number: Decimal) -> int:
    _, digits, exponent = number.as_tuple()
    text = "".join(map(str, digits))
    return max(0, -int(exponent) - (len(text) - len(text.rstrip("0")))) if number else 0


def _text(kind: sa.types.TypeEngine[Any], field: Any, dialect: sa.Dialect) -> str:
    if not isinstance(field, str):
        raise ValueError("text")
    if not is_whole(field):
        raise ValueError("text without a NUL or a lone surrogate, which databases do not keep")
    longest = getattr(kind, "length", None)
    if longest and len(field) > longest and dialect.name != "sqlite":  # some databases cut it off without an error
        raise ValueError(f"text of up to {longest} characters")
    return field


def _one_of(kind: Any, field: Any, dialect: sa.Dialect) -> str:
    if field not in kind.enums:
        raise ValueError(f"one of {', '.join(map(repr, kind.enums))}")
    return str(field)


def _boolean(kind: sa.types.TypeEngine[Any], field: Any, dialect: sa.Dialect) -> bool:
    if not isinstance(field, bool):
        raise ValueError("true or false")
    return field


def _binary(kind: sa.types.TypeEngine[Any], field: Any, dialect: sa.Dialect) -> bytes:
    try:
        return base64.b64decode(_text(sa.String(), field, dialect), validate=True)
    except ValueError:
        raise ValueError("base64, as to_json writes binary") from None


def _uuid(kind: Any, field: Any, dialect: sa.Dialect) -> Any:
    try:
        found = uuid.UUID(_text(sa.String(), field, dialect))
    except ValueError:
        raise ValueError("a UUID") from None
    return found if kind.as_uuid else str(found)


def _date(kind: sa.types.TypeEngine[Any], field: Any, dialect: sa.Dialect) -> datetime.date:
    return _iso(datetime.date, field, "a date such as 2025-10-10")


def _timestamp(kind: Any, field: Any, dialect: sa.Dialect) -> datetime.datetime:
    time = _iso(datetime.datetime, field, "a time such as 2025-10-10T13:55:36.123456")
    _check_fraction(kind, field)
    return _in_zone(kind, time, dialect)


def _time(kind: Any, field: Any, dialect: sa.Dialect) -> datetime.time:
    time = _iso(datetime.time, field, "a time such as 13:55:36.123456")
    _check_fraction(kind, field)
    return _in_zone(kind, time, dialect)


def _iso(of_kind: Any, field: Any, expected: str) -> Any:
    try:
        return of_kind.fromisoformat(_text(sa.String(), field, sa.Dialect()))
    except ValueError:
        raise ValueError(expected) from None


def _check_fraction(kind: Any, field: str) -> None:
    """Refuse parts of a second that the column, or Python, would round or cut off."""
    precision = getattr(kind, "precision", None)
    places = MICROSECONDS if precision is None else precision
    fraction = re.search(r"[.,](\d+)", field)
    if fraction and len(fraction[1].rstrip("0")) > places:
        raise ValueError(f"a time with up to {places} decimal places of a second")


def _in_zone(kind: Any, time: Any, dialect: sa.Dialect) -> Any:
    """Refuse a time zone that the database would drop; refuse a time without a zone if it would assume one."""
    keeps = kind.timezone and dialect.name != "sqlite"
    if keeps and time.tzinfo is None:
        raise ValueError("a time with its zone, such as …Z or …+00:00")
    if not keeps and time.tzinfo is not None:
        why = "SQLite keeps none" if kind.timezone else "the column has none: cast it to timestamp_ntz"
        raise ValueError(f"a time without a zone, because {why}")
    return time


def _plain(kind: sa.types.TypeEngine[Any], field: Any, dialect: sa.Dialect) -> Any:
    """Return a JSON value with floats for its decimals. Raises ValueError if a number or a text cannot be kept."""
    if isinstance(field, dict):
        return {_text(kind, name, dialect): _plain(kind, each, dialect) for name, each in field.items()}
    if isinstance(field, list):
        return [_plain(kind, each, dialect) for each in field]
    if isinstance(field, Decimal):
        return _exact_float(field)
    return _text(kind, field, dialect) if isinstance(field, str) else field


# A subclass comes before its base class.
CONVERT: dict[Any, Callable[..., Any]] = {
    sa.Integer: _integer,
    sa.Float: _float,
    sa.Numeric: _numeric,
    sa.Enum: _one_of,
    sa.String: _text,
    sa.Boolean: _boolean,
    sa.DateTime: _timestamp,
    sa.Date: _date,
    sa.Time: _time,
    sa.LargeBinary: _binary,
    sa.Uuid: _uuid,
}


def _converter(kind: sa.types.TypeEngine[Any]) -> Callable[..., Any] | None:
    return next((convert for of_kind, convert in CONVERT.items() if isinstance(kind, of_kind)), None)


# Converter -> the attributes of a type that limit which fields it holds exactly.
TRAITS = {
    _numeric: ("precision", "scale"),
    _timestamp: ("precision", "timezone"),
    _time: ("precision", "timezone"),
    _text: ("length",),
}


def _traits(kind: Any) -> tuple[Any, ...] | None:
    """Return what decides which fields a type holds exactly; None for a type that the sink does not know."""
    if isinstance(kind, sa.ARRAY):
        of_items = _traits(kind.item_type)
        return of_items and (sa.ARRAY, *of_items)
    convert = _converter(kind)
    if convert is None:
        return None
    return convert, *(getattr(kind, name, None) for name in TRAITS.get(convert, ()))


def numbered(values: Iterable[str], rows: TableRows) -> Iterator[tuple[str, Row]]:
    """Yield each value with the row that it makes. Raises ValueError, which says which row of the batch it is."""
    for number, value in enumerate(values, 1):
        try:
            yield value, rows.row(value)
        except ValueError as error:
            raise ValueError(f"row {number}: {error}") from None
