"""Which of Kafka's errors a restart mends, and which come again until somebody changes something."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException
from kafka import errors as of_kafka_python

from exactly_once_kafka.errors import PASSING, PERMANENT, BatchFailed, SinkRefused, failure
from exactly_once_kafka.kafka_client.cluster import NoSuchPartition, code_of

CODES_OF_LIBRDKAFKA = {
    name: code for name, code in vars(KafkaError).items() if name.isupper() and isinstance(code, int)
}
CODES_OF_KAFKA_PYTHON = {
    name: getattr(kind, "errno")  # noqa: B009  the library comes without types
    for name, kind in vars(of_kafka_python).items()
    if getattr(kind, "errno", None) is not None
}
# A restart may help: Kafka is busy, a leader or coordinator has moved, or librdkafka says so of itself.
RESTART_HELPS = {
    *(*range(-199, -191), -189, -187, -185, -184, -182, -180, -178, -177, -173, -172, -167, -166, -164, -163, -158),
    *(-155, *range(-153, -147), -146, -140, -139, -137, -1, 1, 2, *range(5, 10), 11, *range(13, 17), 22, 25, 27, 36),
    *(41, 45, 46, 51, 52, *range(55, 58), 59, 60, *range(69, 73), 74, 75, 77, 78, 80, 83, 88, 89, 91, 97, 100, 103),
    *(105, 106, 108, 109, 113, 120, 129),
}
# Answers to requests that a sink never sends, such as those of consumers in a group.
OF_OTHERS = {
    *(-191, -179, -176, -175, -174, -168, -162, -161, -160, -159, -157, -156, -147, -143, -142, -141),
    *(0, 4, 12, 23, 26, 28, *range(61, 69), 73, 79, 81, 82, 84, 85, 86, *range(92, 97), 98, 99),
    *(101, 102, 104, 107, 110, 111, 112, *range(116, 120), *range(121, 129), *range(130, 134)),
}


def said_of(code: int, said: str = "what Kafka says", **options: bool) -> SinkRefused | BatchFailed:
    return failure(KafkaException(KafkaError(code, said)), "a-sink", 7, 1, 60, **options)


def said_by_executors(error: of_kafka_python.KafkaError) -> str:
    return str(said_of(code_of(error))).removeprefix("sink 'a-sink' ")


@pytest.mark.parametrize("codes", [CODES_OF_LIBRDKAFKA, CODES_OF_KAFKA_PYTHON], ids=["librdkafka", "kafka-python"])
def test_each_error_of_a_client_library_is_classified(codes):
    assert len(codes) > 100
    known = PERMANENT.keys() | PASSING.keys() | RESTART_HELPS | OF_OTHERS
    unclassified = {name: code for name, code in codes.items() if code not in known}
    assert not unclassified, (
        f"does a restart mend these? If not, add them to errors.py; or add them here: {unclassified}"
    )


def test_no_error_is_classified_twice():
    kinds = PERMANENT.keys(), PASSING.keys(), RESTART_HELPS, OF_OTHERS
    assert sum(map(len, kinds)) == len(set().union(*kinds))


def test_permanent_errors_are_refused_with_what_to_change():
    for code in PERMANENT:
        error = said_of(code)
        assert isinstance(error, SinkRefused)
        assert str(error).startswith("sink 'a-sink' refuses batch 7: ")
        assert "No restart helps" in str(error)
        assert "what Kafka says" in str(error)
        assert "{" not in str(error)


def test_passing_errors_fail_the_batch_for_a_restart():
    for code in (*PASSING, *RESTART_HELPS, *OF_OTHERS):
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
