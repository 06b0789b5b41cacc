"""The wire formats: written, read back, and everything else refused. How Spark reads them is in test_prediction."""

import json

import pytest

from labs.pipeline.records import (
    CLOSING_IP,
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


def test_window_begins_at_its_first_millisecond():
    assert [window_start(time_ms) for time_ms in (0, 4_999, 5_000, 9_999)] == [0, 0, 5_000, 5_000]
