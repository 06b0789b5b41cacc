"""The sink on a Kafka that asks for a password: its options reach the producer and the marker's reader alike."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import StreamingQueryException

from labs.equipment import Broker
from labs.faults import Fault, armed
from labs.pipeline import ExactlyOnceKafkaSink
from labs.pipeline.query_failure import why

USERS = 'required username="broker" password="b" user_broker="b" user_sink="open sesame";'
SETTINGS = {
    "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.client.plain.sasl.jaas.config": f"org.apache.kafka.common.security.plain.PlainLoginModule {USERS}",
}
LOGIN = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": "sink"}
ROWS = 40  # per batch, and two batches


@pytest.fixture(scope="module")
def secured():
    """Yield the address of a broker that wants a password, with an empty topic `results`."""
    with Broker(settings=SETTINGS) as broker:
        admin = AdminClient(client_settings(broker.bootstrap_servers))
        [made] = admin.create_topics([NewTopic("results", 1, 1)]).values()
        made.result(30)
        yield broker.bootstrap_servers


def client_settings(servers, **more):
    login = LOGIN | {"sasl_password": "open sesame"}
    return {"bootstrap.servers": servers} | {key.replace("_", "."): value for key, value in login.items()} | more


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


def read_committed(servers):
    settings = {"group.id": "reader", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    consumer = Consumer(client_settings(servers, **settings))
    consumer.subscribe(["results"])
    numbers = []
    while len(numbers) < 2 * ROWS:
        [message] = consumer.consume(1, timeout=20) or [None]
        assert message is not None, f"only {len(numbers)} came"
        numbers.append(int(message.value()))
    assert not consumer.consume(1, timeout=1)
    consumer.close()
    return sorted(numbers)


@pytest.mark.timeout(120)
def test_sink_with_a_password_publishes_once_across_a_crash(spark, secured, tmp_path):
    sink = ExactlyOnceKafkaSink("secured", "results", bootstrap_servers=secured, sasl_password="open sesame", **LOGIN)
    with armed(Fault("after_commit", 1)), pytest.raises(StreamingQueryException):
        copy_numbers(spark, tmp_path, sink)
    copy_numbers(spark, tmp_path, sink)
    assert read_committed(secured) == list(range(2 * ROWS))


@pytest.mark.timeout(120)
def test_wrong_password_is_a_clear_message(spark, secured, tmp_path):
    wrong = {"sasl_password": "open barley", "transaction_timeout_ms": 5_000}
    sink = ExactlyOnceKafkaSink("intruder", "results", bootstrap_servers=secured, **LOGIN, **wrong)
    with pytest.raises(StreamingQueryException) as failed:
        copy_numbers(spark, tmp_path, sink)
    assert "uthentication" in why(failed.value)
