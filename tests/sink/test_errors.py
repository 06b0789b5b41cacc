"""Which of Kafka's errors a restart mends, and which come again until somebody changes something."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException
from kafka import errors as of_kafka_python

from exactly_once_kafka.errors import OF_OTHERS, PASSING, PERMANENT, BatchFailed, SinkRefused, failure
from exactly_once_kafka.kafka_client.cluster import NoSuchPartition, code_of

CODES_OF_LIBRDKAFKA = {
    name: code for name, code in vars(KafkaError).items() if name.isupper() and isinstance(code, int)
}
CODES_OF_KAFKA_PYTHON = {
    name: getattr(kind, "errno")  # noqa: B009  the library comes without types
    for name, kind in vars(of_kafka_python).items()
    if getattr(kind, "errno", None) is not None
}


def said_of(code: int, said: str = "what Kafka says", **options: bool) -> SinkRefused | BatchFailed:
    return failure(KafkaException(KafkaError(code, said)), "a-sink", 7, 1, 60, **options)


def said_by_executors(error: of_kafka_python.KafkaError) -> str:
    return str(said_of(code_of(error))).removeprefix("sink 'a-sink' ")


@pytest.mark.parametrize("codes", [CODES_OF_LIBRDKAFKA, CODES_OF_KAFKA_PYTHON], ids=["librdkafka", "kafka-python"])
def test_each_error_of_a_client_library_is_classified(codes):
    assert len(codes) > 100
    known = PERMANENT.keys() | PASSING.keys() | OF_OTHERS
    unclassified = {name: code for name, code in codes.items() if code not in known}
    assert not unclassified, f"does a restart mend these? Add them to errors.py: {unclassified}"


def test_no_error_is_classified_twice():
    assert not PERMANENT.keys() & PASSING.keys()
    assert not OF_OTHERS & (PERMANENT.keys() | PASSING.keys())


def test_permanent_errors_are_refused_with_what_to_change():
    for code in PERMANENT:
        error = said_of(code)
        assert isinstance(error, SinkRefused)
        assert str(error).startswith("sink 'a-sink' refuses batch 7: ")
        assert "No restart helps" in str(error)
        assert "what Kafka says" in str(error) or code == KafkaError.INVALID_TRANSACTION_TIMEOUT
        assert "{" not in str(error)


def test_passing_errors_fail_the_batch_for_a_restart():
    for code in (*PASSING, *OF_OTHERS):
        error = said_of(code)
        assert isinstance(error, BatchFailed)
        assert "estart the query" in str(error)
        assert "{" not in str(error)


def test_error_of_kafka_python_without_a_code_is_permanent_where_another_try_is_in_vain():
    assert said_by_executors(NoSuchPartition("t-7")).startswith("refuses")
    assert said_by_executors(of_kafka_python.UnsupportedCodecError("zstd")).startswith("refuses")
    assert said_by_executors(of_kafka_python.InvalidTimestampError("t-0")).startswith("refuses")
    assert not said_by_executors(of_kafka_python.KafkaConnectionError("gone")).startswith("refuses")


def test_error_that_nobody_knows_yet_is_left_to_a_restart_and_named():
    error = said_of(4711)
    assert isinstance(error, BatchFailed)
    assert "what Kafka says" in str(error)
    assert "4711" in str(error)


def test_login_that_is_refused_is_permanent_unless_a_restart_brings_another_token():
    for code in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED):
        assert isinstance(said_of(code), SinkRefused)
        assert isinstance(said_of(code, by_token=True), BatchFailed)
    assert isinstance(said_of(KafkaError.UNSUPPORTED_SASL_MECHANISM, by_token=True), SinkRefused)
