"""The options of a sink: what would break the protocol is refused when the sink is made, before any Kafka is asked."""

from __future__ import annotations

import subprocess
import sys

import pytest

from exactly_once_kafka import ExactlyOnceKafkaSink
from exactly_once_kafka.kafka_client.settings import kafka_python_settings
from exactly_once_kafka.producer_options import connection_settings, producer_settings

SETTINGS = "sink", "127.0.0.1:1"


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        ({"transactional_id": "mine"}, "it is the sink's name"),
        ({"metadata_broker_list": "127.0.0.1:2"}, "pass bootstrap_servers"),
        ({"delivery_report_only_error": False}, "treats every report as a failure"),
        ({"on_delivery": print}, "the sink sets its own"),
        ({"error_cb": print}, "the sink sets its own"),
        ({"default_topic_config": {"acks": 0}}, "pass each setting in it as an option"),
        ({"test_mock_num_brokers": 1}, "not go to a real Kafka"),
        ({"acks": 0}, "`acks` must be set to `all`"),
        ({"request_required_acks": 1}, "`acks` must be set to `all`"),
        ({"max_in_flight": 6}, "must be set <= 5"),
        ({"retries": 0}, "must be set >= 1"),
        ({"queuing_strategy": "lifo"}, "must be set to `fifo`"),
        ({"message_timeout_ms": 100_000}, "must be set <= `transaction.timeout.ms`"),
        ({"transaction_timeout_ms": "a minute"}, "could not convert"),
        ({"oauth_cb": "a token"}, "must be a function"),
        ({"no_such_option": 1}, "No such configuration property"),
        ({"sasl_jaas_config": "x"}, "Java client; here use sasl_username"),
    ],
)
def test_option_that_would_break_the_protocol_is_refused(option, complaint):
    with pytest.raises(ValueError, match=complaint):
        producer_settings(*SETTINGS, option)


@pytest.mark.parametrize("option", [{"acks": "all"}, {"enable_gapless_guarantee": True}, {"compression_type": "lz4"}])
def test_option_that_does_no_harm_is_passed_on(option):
    settings = producer_settings(*SETTINGS, option)
    [(key, value)] = option.items()
    assert settings[key.replace("_", ".")] == value


def test_timeout_of_an_hour_does_not_overflow_the_wait_for_an_answer():
    assert producer_settings(*SETTINGS, {"transaction_timeout_ms": 3_600_000})["socket.timeout.ms"] == 300_000


def test_what_lets_a_producer_in_lets_the_markers_reader_in():
    options = {"https_ca_location": "probe", "enable_ssl_certificate_verification": True, "sasl_mechanism": "PLAIN"}
    options |= {"enable_sasl_oauthbearer_unsecure_jwt": True, "client_id": "me"}
    options |= {"oauth_cb": lambda _: ("token", 0.0), "linger_ms": 1}
    let_in = connection_settings(producer_settings(*SETTINGS, options))
    assert let_in.keys() == {"oauth_cb", *(key.replace("_", ".") for key in options)} - {"oauth.cb", "linger.ms"}


@pytest.mark.parametrize(
    "option",
    [
        {"security_protocol": " SSL"},
        {"sasl_mechanism": "\tPLAIN"},
        {"compression_type": " lz4"},
        {"partitioner": " murmur2"},
    ],
)
def test_blank_that_only_one_client_library_skips_is_refused(option):
    with pytest.raises(ValueError, match="leave out the blanks"):
        producer_settings(*SETTINGS, option)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"security.protocol": "TLS"}, "knows no security.protocol 'TLS'"),
        (
            {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "a=b,c", "sasl.password": "p"},
            "a comma or an equals sign",
        ),
    ],
)
def test_connection_that_kafka_python_would_make_otherwise_is_left_to_the_driver(settings, why):
    with pytest.raises(ValueError, match=why):
        kafka_python_settings(settings)


def test_numbers_of_a_connection_are_text_in_both_client_libraries():
    settings = {"sasl.mechanism": "PLAIN", "sasl.username": 7, "sasl.password": 12345678}
    assert kafka_python_settings(settings)["sasl_plain_password"] == "12345678"


@pytest.mark.parametrize("driver_rows", ["1000", -1, 1.5, True])
def test_number_of_rows_for_the_driver_is_a_whole_number(driver_rows):
    with pytest.raises(ValueError, match=r"driver_rows is .*; expected a whole number, 0 or more"):
        ExactlyOnceKafkaSink("a", "b", bootstrap_servers="127.0.0.1:1", driver_rows=driver_rows)


def test_warnings_of_the_sink_are_printed_in_a_program_without_logging():
    program = "from exactly_once_kafka.producer_options import LOGGER; LOGGER.warning('the driver writes')"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "the driver writes" in ran.stderr


def test_missing_certificate_of_an_identity_provider_is_a_clear_error():
    oidc = {"method": "oidc", "client_id": "me", "client_secret": "s", "token_endpoint_url": "https://localhost/"}
    options = {f"sasl_oauthbearer_{key}": value for key, value in oidc.items()}
    login = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", "https_ca_location": "/nowhere.pem"}
    with pytest.raises(ValueError, match=r"a producer option is not usable: .*No such file"):
        producer_settings("sink", "127.0.0.1:1", options | login)
