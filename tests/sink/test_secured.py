"""The sink on a Kafka with TLS and passwords: its options reach the producer and the marker's reader alike."""

from __future__ import annotations

import uuid
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import trustme
from confluent_kafka import Consumer, KafkaException, Message
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from kafka.errors import KafkaError as Unreachable
from kafka.errors import SaslAuthenticationFailedError
from pyspark.errors import StreamingQueryException

from exactly_once_kafka.deadline import Deadline
from exactly_once_kafka.kafka_client.cluster import Cluster
from exactly_once_kafka.kafka_client.settings import kafka_python_settings
from exactly_once_kafka.points import AFTER_COMMIT
from exactly_once_kafka.sink import WRITERS, ExactlyOnceKafkaSink
from labs.equipment.broker import Broker
from labs.evidence.auditor.audit import audit
from labs.evidence.readers.results import as_result
from labs.faults.fault_points import Fault, FaultPoints
from labs.pipeline.query.query_failure import why
from tests.sink.cluster_driver import EXECUTORS, ClusterDriver, Order, expected, writers_of
from tests.sink.conftest import wrote

pytestmark = pytest.mark.long

USERS = 'required username="broker" password="b" user_broker="b" user_sink="open sesame";'
SETTINGS = {
    "listener.security.protocol.map": "CLIENT:SASL_SSL,CONTROLLER:PLAINTEXT",
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.client.plain.sasl.jaas.config": f"org.apache.kafka.common.security.plain.PlainLoginModule {USERS}",
    **{
        f"listener.name.client.scram-sha-{bits}.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        )
        for bits in (256, 512)
    },
}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LOGIN = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": "sink"}
PARTITIONS = EXECUTORS
ROWS = 40  # per batch, and two batches


@dataclass(frozen=True)
class Secured:
    servers: str
    ca: Path  # the certificate that the broker's is signed with

    @property
    def options(self) -> dict[str, str]:
        """What a sink is told, less the password."""
        return LOGIN | {"bootstrap_servers": self.servers, "ssl_ca_location": str(self.ca)}

    def client_settings(self) -> dict[str, Any]:
        options = self.options | {"sasl_password": "open sesame"}
        return {key.replace("_", "."): value for key, value in options.items()}


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    """Yield a broker that speaks TLS and wants a password, and knows it by each of MECHANISMS."""
    directory = tmp_path_factory.mktemp("certificates")
    ca = trustme.CA()
    ca.cert_pem.write_to_path(directory / "ca.pem")
    issued = ca.issue_cert("127.0.0.1")
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    pkcs8 = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())  # all that Kafka can read
    (directory / "broker.pem").write_bytes(pkcs8 + b"".join(pem.bytes() for pem in issued.cert_chain_pems))
    stores = {"ssl.keystore.location": directory / "broker.pem", "ssl.truststore.location": directory / "ca.pem"}
    with Broker(settings=SETTINGS | {name: str(file) for name, file in stores.items()}) as broker:
        kafka = Secured(broker.bootstrap_servers, directory / "ca.pem")
        admin = AdminClient(kafka.client_settings())
        kinds = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
        for kind in kinds:  # one a request
            user = UserScramCredentialUpsertion("sink", ScramCredentialInfo(kind, iterations=4096), b"open sesame")
            [changed] = admin.alter_user_scram_credentials([user]).values()
            changed.result(30)
        yield kafka


def copy_numbers(spark, checkpoint, sink):
    """Send the numbers of two batches through the sink, which fails or is done with both."""
    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
    rows = numbers.selectExpr("CAST(value AS STRING) AS value").where(f"value < {2 * ROWS}")
    query = rows.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(sink).start()
    try:
        while not query.awaitTermination(0.1):
            if query.lastProgress and query.lastProgress.batchId >= 2:
                return
    finally:
        query.stop()


def read_committed(secured, topic, rows):
    settings = {"group.id": "reader", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    consumer = Consumer(secured.client_settings() | settings)
    consumer.subscribe([topic])
    messages: list[Message] = []
    while len(messages) < rows:
        came = consumer.consume(1, timeout=20)
        assert came, f"only {len(messages)} came"
        messages += came
    assert not consumer.consume(1, timeout=1)
    consumer.close()
    return messages


@pytest.fixture
def topic(secured) -> str:
    name = f"results-{uuid.uuid4().hex[:8]}"
    admin = AdminClient(secured.client_settings())
    [made] = admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values()
    made.result(30)
    return name


def test_certificate_that_is_for_another_host_is_refused_by_both_client_libraries(secured):
    host = {"bootstrap.servers": secured.servers.replace("127.0.0.1", "localhost")}
    settings = secured.client_settings() | host
    with pytest.raises(KafkaException):
        AdminClient(settings | {"log_level": 0}).list_topics(timeout=5)
    with (
        closing(Cluster(kafka_python_settings(settings))) as cluster,
        pytest.raises((Unreachable, TimeoutError)),
    ):
        cluster.connect(Deadline(5))
    unchecked = settings | {"ssl.endpoint.identification.algorithm": "none"}
    assert AdminClient(unchecked).list_topics(timeout=20).brokers
    with closing(Cluster(kafka_python_settings(unchecked))) as cluster:
        cluster.connect(Deadline(20))


def test_client_of_the_executors_reports_a_refused_login(secured):
    """Not always at once: the answer is lost if the broker's end of the connection is seen before it."""
    settings = secured.client_settings() | {"sasl.password": "open barley"}
    with closing(Cluster(kafka_python_settings(settings))) as cluster:
        for _ in range(2):
            patience = Deadline(60)
            with pytest.raises(SaslAuthenticationFailedError):
                cluster.retry(lambda deadline=patience: cluster.connect(deadline), patience)


def test_client_of_the_executors_finds_topics_again_after_a_certificate_was_away_for_a_while(secured, topic, tmp_path):
    ca = tmp_path / "ca.pem"
    ca.write_bytes(secured.ca.read_bytes())
    settings = secured.client_settings() | {"ssl.ca.location": str(ca)}
    with closing(Cluster(kafka_python_settings(settings))) as cluster:
        cluster.connect(Deadline(20))
        ca.rename(tmp_path / "away.pem")
        for connection in list(cluster._manager._conns.values()):
            connection.close()
        with pytest.raises(TimeoutError, match="no answer"):
            cluster.partitions(topic, Deadline(2))
        (tmp_path / "away.pem").rename(ca)
        assert cluster.partitions(topic, Deadline(20)) == PARTITIONS


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("writers", "mechanism"), [("driver", "PLAIN"), *(("executors", mechanism) for mechanism in MECHANISMS)]
)
def test_sink_with_tls_and_a_password_publishes_once_across_a_crash(
    spark, secured, topic, tmp_path, writers, mechanism
):
    options = secured.options | {"sasl_mechanism": mechanism, "writers": writers, "driver_rows": 0}
    points = FaultPoints()
    sink = ExactlyOnceKafkaSink(topic, topic, sasl_password="open sesame", points=points, **options)
    with points.armed(Fault("after_commit", 1)), pytest.raises(StreamingQueryException):
        copy_numbers(spark, tmp_path, sink)
    copy_numbers(spark, tmp_path, sink)
    assert wrote(sink, writers)
    assert sorted(int(message.value()) for message in read_committed(secured, topic, 2 * ROWS)) == list(range(2 * ROWS))


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_executors_of_a_cluster_log_in_and_publish_once_though_the_driver_is_killed(secured, topic, tmp_path):
    login = secured.options | {"sasl_mechanism": "SCRAM-SHA-512", "sasl_password": "open sesame"}
    (notes := tmp_path / "notes").mkdir()
    order = Order(ExactlyOnceKafkaSink, secured.servers, topic, PARTITIONS, 2, tmp_path, notes, login=login)
    with closing(ClusterDriver()) as driver:
        driver.begin(replace(order, die_at=AFTER_COMMIT))
        assert driver.end() == "killed"
        driver.begin(order)
        assert driver.end() == ""
    results = [as_result(message) for message in read_committed(secured, topic, len(expected(batches=2)))]
    verdict = audit(expected(batches=2), results)
    assert verdict.valid, verdict
    assert writers_of(results) == {"0", "1"}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("writers", WRITERS)
def test_wrong_password_is_a_clear_message(spark, secured, tmp_path, writers):
    wrong = {"sasl_password": "open barley", "transaction_timeout_ms": 5_000, "writers": writers}
    assert "uthentication" in complaint(
        spark, tmp_path, ExactlyOnceKafkaSink("intruder", "results", **secured.options, **wrong)
    )


@pytest.mark.timeout(120)
@pytest.mark.parametrize("writers", WRITERS)
def test_certificate_of_nobody_known_is_a_clear_message(spark, secured, tmp_path, writers):
    trustme.CA().cert_pem.write_to_path(tmp_path / "another.pem")
    options = secured.options | {"ssl_ca_location": str(tmp_path / "another.pem"), "transaction_timeout_ms": 5_000}
    options |= {"writers": writers}
    sink = ExactlyOnceKafkaSink("stranger", "results", sasl_password="open sesame", **options)
    assert "certificate" in complaint(spark, tmp_path / "checkpoint", sink)


def complaint(spark, checkpoint, sink):
    with pytest.raises(StreamingQueryException) as failed:
        copy_numbers(spark, checkpoint, sink)
    return why(failed.value)
