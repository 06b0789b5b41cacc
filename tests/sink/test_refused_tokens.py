"""A login token that Kafka refuses is not offered again: the restart of the query asks for another one."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import StreamingQueryException

from exactly_once_kafka.deadline import Deadline
from exactly_once_kafka.errors import is_login_refused
from exactly_once_kafka.producer import PendingProducer
from exactly_once_kafka.producer_options import producer_settings
from exactly_once_kafka.sink import WRITERS, ExactlyOnceKafkaSink
from labs.equipment.broker import Broker
from labs.equipment.waiting import eventually
from tests.sink.conftest import wrote
from tests.sink.test_oauth_tokens import Provider, unsigned
from tests.sink.test_permissions import OAUTH, PLAIN, UNSIGNED

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

IDLE = 2  # seconds, after which the broker ends a connection, so that the next batch has to log in
SETTINGS = {
    "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.client.plain.sasl.jaas.config": f'{PLAIN} required username="broker" password="b" user_broker="b";',
    "listener.name.client.oauthbearer.sasl.jaas.config": f"{OAUTH}.OAuthBearerLoginModule required;",
    "listener.name.client.oauthbearer.sasl.server.callback.handler.class": UNSIGNED,
    "connections.max.idle.ms": str(1000 * IDLE),
}
BY_TOKEN = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
EXPIRED = -60.0  # seconds of life: the broker refuses it

Publish = Callable[[ExactlyOnceKafkaSink, int], None]


@pytest.fixture(scope="module")
def kafka():
    """Yield a broker that lets in whoever has a token that is not expired."""
    with Broker(settings=SETTINGS) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def results(kafka) -> str:
    name = f"results-{uuid.uuid4().hex[:8]}"
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    login |= {"sasl.username": "broker", "sasl.password": "b"}
    admin = AdminClient({"bootstrap.servers": kafka, **login})
    [made] = admin.create_topics([NewTopic(name, 1, 1)]).values()
    made.result(30)
    return name


class Tokens:
    """An `oauth_cb` that gives the tokens of these lives, in seconds, the last of them for ever.

    It says that each lives for `said` seconds. It counts in a file, since executors might ask too.
    """

    def __init__(self, file: Path, *lives: float, said: tuple[float, ...] = (3600,)):
        self._file, self._lives, self._said = file, lives, said

    @property
    def asked(self) -> int:
        return len(self._file.read_text()) if self._file.exists() else 0

    def __call__(self, config: str) -> tuple[str, float]:
        n = self.asked
        with self._file.open("a") as file:
            file.write("x")
        life, said = (each[min(n, len(each) - 1)] for each in (self._lives, self._said))
        return unsigned("sink", life), time.time() + said


def sink_by_token(kafka: str, results: str, writers: str, **options: Any) -> ExactlyOnceKafkaSink:
    common: dict[str, Any] = {"bootstrap_servers": kafka, "writers": writers, "driver_rows": 0, **BY_TOKEN}
    return ExactlyOnceKafkaSink(results, results, **common, **options)


def fails(publish: Publish, sink: ExactlyOnceKafkaSink, batches: int) -> None:
    started = time.monotonic()
    with pytest.raises(StreamingQueryException) as failed:
        publish(sink, batches)
    assert "errors.BatchFailed: " in str(failed.value)
    assert "Kafka refuses the token" in str(failed.value)
    assert time.monotonic() - started < 30  # and not after a whole transaction's time


@pytest.mark.parametrize("writers", WRITERS)
def test_restart_with_the_same_sink_asks_for_another_token(kafka, results, publish, tmp_path, writers):
    tokens = Tokens(tmp_path / "asked", EXPIRED, 3600)
    sink = sink_by_token(kafka, results, writers, oauth_cb=tokens)
    fails(publish, sink, 1)
    publish(sink, 2)
    assert wrote(sink, writers)
    assert tokens.asked == 2


@pytest.mark.parametrize("writers", WRITERS)
def test_restart_asks_for_another_token_after_one_that_was_good_at_first(kafka, results, publish, tmp_path, writers):
    """Also in the processes of the executors, though the second token does not live as long as the first claimed to."""
    tokens, started = Tokens(tmp_path / "asked", 20, 3600, said=(3600, 600)), time.time()
    sink = sink_by_token(kafka, results, writers, oauth_cb=tokens)
    publish(sink, 1)
    assert wrote(sink, writers)
    # What is idle is closed then, and who comes again is refused.
    eventually(lambda: time.time() > started + 20 + IDLE + 10, timeout=60, interval=1)
    fails(publish, sink, 3)
    publish(sink, 3)
    assert wrote(sink, writers)
    assert tokens.asked == 2


def test_restart_asks_an_identity_provider_for_another_token(kafka, results, publish):
    with Provider(subject="") as provider:  # whose token Kafka refuses
        oidc = {"method": "oidc", "client_id": "me", "client_secret": "s", "token_endpoint_url": provider.url}
        options = {f"sasl_oauthbearer_{key}": value for key, value in oidc.items()}
        sink = sink_by_token(kafka, results, "executors", **options)
        fails(publish, sink, 1)
        provider.subject = "sink"
        publish(sink, 1)
    assert len(provider.asked) == 2


def test_producer_whose_token_is_refused_says_so_at_once(kafka, tmp_path):
    settings = producer_settings("a-sink", kafka, {**BY_TOKEN, "oauth_cb": Tokens(tmp_path / "asked", EXPIRED)})
    patience = Deadline(30)
    with pytest.raises(KafkaException) as failed:
        PendingProducer(settings).take(patience)
    assert is_login_refused(failed.value)
    assert patience.elapsed < 15
