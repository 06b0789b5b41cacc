"""The wire formats: written, read back, and everything else refused. How Spark reads them is in test_prediction."""

import json
from random import Random

import pytest

from labs.pipeline.log.access_log import parse_line
from labs.pipeline.log.log_report import BadLine
from labs.pipeline.query.ip_count import parse_records
from labs.pipeline.records import (
    CLOSING_DELAY_MS,
    CLOSING_IP,
    LATEST_ACCESS_MS,
    LATEST_MS,
    TIME_DIGITS,
    parse_result_value,
    parse_source_value,
    result_value,
    source_value,
    window_start,
)


@pytest.mark.parametrize("access", [(0, "192.0.2.1"), (1_767_225_600_000, "2001:db8::1"), (5, CLOSING_IP), (5, "ü")])
def test_source_record_is_read_back(access):
    assert parse_source_value(source_value(*access)) == access


@pytest.mark.parametrize(
    "value", [None, b"", b"5", b"5,", b",a", b"-5,a", b"5,a,b", b"5, a", b"5,a\n", b"1" * 15 + b",a"]
)
def test_malformed_source_record_has_neither_time_nor_ip(value):
    assert parse_source_value(value) == (None, None)


@pytest.mark.parametrize("result", [(1_767_225_600_000, "192.0.2.1", 10), (0, 'quoted "ü"', 1)])
def test_result_record_is_read_back(result):
    assert parse_result_value(result_value(*result)) == result


def test_result_record_is_written_as_spark_writes_it():
    assert result_value(5_000, "::1", 3) == b'{"window_start":5000,"ip":"::1","count":3}'


@pytest.mark.parametrize(
    "wrong", [{"count": 1.0}, {"count": True}, {"count": "1"}, {"count": None}, {"window_start": 0.0}, {"ip": 7}]
)
def test_result_record_with_a_value_of_another_type_is_refused(wrong):
    value = json.dumps({"window_start": 0, "ip": "a", "count": 1} | wrong)
    with pytest.raises(ValueError, match=r'is not a result of the IP count; expected \{"window_start": epoch millis'):
        parse_result_value(value)


@pytest.mark.parametrize("value", [None, b"", b"junk", b"[]", b"5", b'{"ip": "a", "count": 1}', b"\xff"])
def test_what_is_no_result_record_is_refused(value):
    with pytest.raises(ValueError, match="is not a result"):
        parse_result_value(value)


def test_result_record_is_read_as_json_reads_it_whatever_is_changed_in_it():
    """A plain one is not read by `json`. Each value here is a result with up to three bytes changed."""
    random, fields, read = Random(7), {"window_start": int, "ip": str, "count": int}, 0
    for _ in range(50_000):
        value = bytearray(result_value(random.choice((0, 5_000, 1_767_225_600_000)), "::1", random.choice((1, 10))))
        for _ in range(random.randrange(4)):
            place = random.randrange(len(value))
            value[place : place + random.randrange(2)] = random.choice(
                (b"", b"0", b'"', b"\\", b" ", b"-", b".", b"\x7f")
            )
        try:
            found = json.loads(value)
            expected = [found[name] for name in fields]
            assert [type(each) for each in expected] == list(fields.values())
        except (ValueError, KeyError, TypeError, AssertionError):
            with pytest.raises(ValueError, match="is not a result"):
                parse_result_value(bytes(value))
        else:
            read += 1
            assert parse_result_value(bytes(value)) == tuple(expected)
    assert 10_000 < read < 40_000


def test_window_begins_at_its_first_millisecond():
    assert [window_start(time_ms) for time_ms in (0, 4_999, 5_000, 9_999)] == [0, 0, 5_000, 5_000]


def test_the_latest_access_leaves_room_for_the_closing_record_and_a_later_one_is_a_bad_line():
    assert parse_line(b"%d,192.0.2.1" % LATEST_ACCESS_MS) == (LATEST_ACCESS_MS, "192.0.2.1")
    with pytest.raises(BadLine, match="bad time"):
        parse_line(b"%d,192.0.2.1" % (LATEST_ACCESS_MS + 1))
    closing = LATEST_ACCESS_MS + CLOSING_DELAY_MS
    assert parse_source_value(source_value(closing, CLOSING_IP)) == (closing, CLOSING_IP)


@pytest.mark.parametrize("time_ms", [-1, LATEST_MS + 1, 10**20])
def test_a_time_that_would_not_be_read_back_is_not_written(time_ms):
    with pytest.raises(ValueError, match="expected 0 to 99999999999999 ms since 1970"):
        source_value(time_ms, "192.0.2.1")


TIMES = [b"0", b"-0", b"+0", b"007", b"5", b"-5", b"5.0", b"5e3", b"0x5", b" 5", b"5 ", b"", b"\xd9\xa3", "５".encode()]
TIMES += [b"%d" % each for each in (LATEST_ACCESS_MS, LATEST_MS, LATEST_MS + 1, 253_402_300_799_999, 2**63, 10**30)]
TIMES += [b"0" * 13 + b"5", b"0" * 14 + b"5", b"1767225600000"]
IPS = [
    b"192.0.2.1",
    b"-",
    b"::1",
    b"fe80::1%eth0",
    b"",
    b" ",
    b"a b",
    b"a,b",
    b",",
    "ü".encode(),
    "日".encode(),
    b'"',
    b"\\",
]
IPS += [b"a" + bytes([code]) for code in range(256)] + [b"a\xc3(", b"\xed\xa0\x80", b"a\r\n", b"a\n\n", b"x" * 300]
IPS += [f"a{chr(code)}".encode() for code in (0x85, 0xA0, 0x1680, 0x2003, 0x2028, 0x3000, 0xFEFF, 0xFFFD, 0x1F600)]


PIECES = [b"%d" % digit for digit in range(10)] * 3
PIECES += [bytes([code]) for code in b",,.-+ \t\n\ra:\x00\x01\x1c\x7fLe_\xff\xc3"]
PIECES += [b"\xe2\x80", b"\xc0\xaf", b"\xed\xa0\x80"]
PIECES += [text.encode() for text in ("\x85", "\xa0", "\u0661", "\u2003", "\u2028", "\ufffd", "\U0001d7d7", "é")]


def drawn_value(random: Random) -> bytes:
    """Return a value that is well-formed or nearly so: digits, a comma and an IP, with up to two pieces put in."""
    time = b"".join(random.choices(PIECES[:10], k=random.randint(0, TIME_DIGITS + 1)))
    comma = random.choice([b",", b",", b",", b"", b",,"])
    value = time + comma + b"".join(random.choices(PIECES, k=random.randint(0, 5)))
    for _ in range(random.choice([0, 0, 1, 2])):
        at = random.choice([0, len(time), random.randint(0, len(value))])
        value = value[:at] + random.choice(PIECES) + value[at:]
    return value


@pytest.mark.bench
def test_spark_reads_source_records_as_python_does(spark):
    values = [None, b"", b"5", *(b"%s,%s" % (time, ip) for time in TIMES for ip in IPS)]
    random = Random(5)
    values += [drawn_value(random) for _ in range(50_000)]
    rows = spark.createDataFrame(
        [(0, place, value) for place, value in enumerate(values)], "partition int, offset long, value binary"
    )
    read = parse_records(rows).selectExpr("offset", "unix_millis(event_time) AS time_ms", "encode(ip, 'UTF-8') AS ip")
    found = {row.offset: (row.time_ms, row.ip and bytes(row.ip).decode()) for row in read.collect()}
    expected = {place: parse_source_value(value) for place, value in enumerate(values)}
    assert {
        values[place]: (found[place], expected[place]) for place in expected if found[place] != expected[place]
    } == {}
    good = sum(ip is not None for _, ip in expected.values())
    assert 5_000 < good < len(expected) - 5_000
