"""The sink on a Kafka that lets in whom it knows, and lets them do what they were granted: what is missing is said."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from pyspark.errors import StreamingQueryException

from exactly_once_kafka.__main__ import main
from exactly_once_kafka.marker_topic import SETTINGS as MARKER_SETTINGS
from exactly_once_kafka.sink import WRITERS, ExactlyOnceKafkaSink
from labs.equipment.broker import Broker
from labs.equipment.waiting import eventually
from labs.pipeline.query.query_failure import why
from tests.sink.conftest import wrote
from tests.sink.test_oauth_tokens import Provider, unsigned

pytestmark = pytest.mark.long

# What docs/outgrowing-one-machine.md lists for the sink: nothing with a group. Who may write or read may also describe.
READ, WRITE, CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE
ALLOWED = {
    "read": (ResourceType.TOPIC, "results", [READ]),
    "write": (ResourceType.TOPIC, "results", [WRITE]),
    "marker": (ResourceType.TOPIC, "{user}-marker", [WRITE, READ, AclOperation.DESCRIBE_CONFIGS, CREATE]),
    "transaction": (ResourceType.TRANSACTIONAL_ID, "{user}", [WRITE]),
}
WITHOUT = ("without-write", "without-marker", "without-transaction")
BLIND = [f"blind-{writers}" for writers in WRITERS]
LACKS = {user: user.removeprefix("without-") for user in WITHOUT} | dict.fromkeys(BLIND, "read")
ADOPTER = "adopter"  # may not create topics
USERS = [*LACKS, ADOPTER, *(f"{user}-{writers}" for user in ("sink", "oidc") for writers in WRITERS)]

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer"
UNSIGNED = f"{OAUTH}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
SETTINGS = {
    "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.client.plain.sasl.jaas.config": f'{PLAIN} required username="broker" password="b" user_broker="b" '
    + " ".join(f'user_{user}="p"' for user in USERS)
    + ";",
    "listener.name.client.oauthbearer.sasl.jaas.config": f"{OAUTH}.OAuthBearerLoginModule required;",
    "listener.name.client.oauthbearer.sasl.server.callback.handler.class": UNSIGNED,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:broker;User:ANONYMOUS",
}
ANY: Any = None  # name, user or host: the library takes None for each, though its annotations do not say so
ANY_GRANT = AclBindingFilter(
    ResourceType.ANY, ANY, ResourcePatternType.ANY, ANY, ANY, AclOperation.ANY, AclPermissionType.ANY
)
TIMEOUT = 60  # seconds, of a transaction; what is not allowed must be said long before


@dataclass(frozen=True)
class Guarded:
    servers: str

    def sink(self, writers: str, user: str, password: str = "p", **options) -> ExactlyOnceKafkaSink:
        common: dict[str, Any] = {"bootstrap_servers": self.servers, "writers": writers, "driver_rows": 0}
        return ExactlyOnceKafkaSink(user, "results", **common, **(options or self.login(user, password)))

    def login(self, user: str, password: str = "p") -> dict[str, str]:
        login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
        return login | {"sasl_username": user, "sasl_password": password}

    def token_options(self) -> dict[str, str]:
        return {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}


@pytest.fixture(scope="module")
def guarded():
    """Yield a broker that asks who one is and what one may do, with an empty topic `results`."""
    with Broker(settings=SETTINGS) as broker:
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
        login |= {"sasl.username": "broker", "sasl.password": "b"}
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, **login})
        topics = [NewTopic("results", 1, 1), NewTopic(f"{ADOPTER}-marker", 1, 1, config=MARKER_SETTINGS)]
        for made in admin.create_topics(topics).values():
            made.result(30)
        allowed = [(user, ALLOWED[what]) for user in USERS for what in ALLOWED if what != LACKS.get(user)]
        grants = [_grant(user, kind, name, each) for user, (kind, name, operations) in allowed for each in operations]
        grants = [grant for grant in grants if (grant.principal, grant.operation) != (f"User:{ADOPTER}", CREATE)]
        for granted in admin.create_acls(grants).values():
            granted.result(30)
        # What the controller has granted, the broker learns a moment later.
        eventually(lambda: len(admin.describe_acls(ANY_GRANT).result(30)) == len(grants), timeout=60)
        yield Guarded(broker.bootstrap_servers)


def _grant(user: str, kind: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    name = name.format(user=user)
    return AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)


@pytest.mark.parametrize("writers", WRITERS)
def test_a_topic_that_may_not_be_read_is_said_not_to_be_looked_at(guarded, publish, writers, caplog):
    publish(guarded.sink(writers, f"blind-{writers}"), 2)
    assert caplog.text.count("not allowed to READ topic 'results'") == 1


@pytest.mark.parametrize(
    ("user", "complaint"),
    [
        ("without-write", "not allowed to WRITE to topic 'results'"),
        ("without-marker", "not allowed to READ and WRITE topic 'without-marker-marker'"),
        ("without-transaction", "not allowed to WRITE to transactional id 'without-transaction'"),
    ],
)
@pytest.mark.parametrize("writers", WRITERS)
def test_what_is_not_allowed_is_said_at_once(publish, guarded, user, complaint, writers):
    started = time.monotonic()
    with pytest.raises(StreamingQueryException) as failed:
        publish(guarded.sink(writers, user))
    assert complaint in why(failed.value)
    assert time.monotonic() - started < TIMEOUT / 2


def test_who_may_not_create_a_marker_topic_can_adopt_in_one_that_exists(guarded, capsys):
    options = [f"--option={key}={value}" for key, value in guarded.login(ADOPTER).items()]
    adopt = ["adopt", ADOPTER, "--bootstrap-servers", guarded.servers, "--topic", "results"]
    assert main([*adopt, "--batch", "3", "--query-id", "a-query", *options]) == 0, capsys.readouterr()


@pytest.mark.parametrize("writers", WRITERS)
def test_timeout_above_the_brokers_maximum_names_its_setting(publish, guarded, writers):
    login: dict[str, Any] = {**guarded.login(f"sink-{writers}"), "transaction_timeout_ms": 3_600_000}
    with pytest.raises(StreamingQueryException) as failed:
        publish(guarded.sink(writers, f"sink-{writers}", **login))
    assert "transaction_timeout_ms is 3600000" in why(failed.value)
    assert "transaction.max.timeout.ms" in why(failed.value)


@pytest.mark.parametrize("writers", WRITERS)
def test_one_token_of_the_users_own_function_does_for_many_batches(publish, guarded, tmp_path, writers):
    asked = tmp_path / "asked"  # a file, since executors might ask too
    user = f"sink-{writers}"

    def token(config: str) -> tuple[str, float]:
        with asked.open("a") as log:
            log.write("once\n")
        return unsigned(user, 3600), time.time() + 3600

    publish(sink := guarded.sink(writers, user, oauth_cb=token, **guarded.token_options()), batches=4)
    assert wrote(sink, writers)
    assert asked.read_text() == "once\n"


@pytest.mark.parametrize("writers", WRITERS)
def test_one_token_of_an_identity_provider_does_for_many_batches(publish, guarded, writers):
    with Provider(subject=f"oidc-{writers}") as provider:
        oidc = {"method": "oidc", "client_id": "me", "client_secret": "s", "token_endpoint_url": provider.url}
        options = {f"sasl_oauthbearer_{key}": value for key, value in oidc.items()}
        publish(sink := guarded.sink(writers, f"oidc-{writers}", **options, **guarded.token_options()), batches=4)
    assert wrote(sink, writers)
    assert len(provider.asked) == 1
