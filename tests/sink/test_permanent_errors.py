"""What no restart mends is refused, on the real broker and by either writer: the message says what to change."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from exactly_once_kafka.__main__ import main
from exactly_once_kafka.deadline import Deadline
from exactly_once_kafka.marker_store import MarkerStore
from exactly_once_kafka.marker_topic import MarkerTopicUnsafe
from exactly_once_kafka.sink import WRITERS, ExactlyOnceKafkaSink
from labs.equipment.broker import Broker
from labs.equipment.topics import create_topic

TIMELESS = {"message_timestamp_before_max_ms": "1", "message_timestamp_after_max_ms": "1"}  # as if a clock were wrong
COMPACTED = {"cleanup_policy": "compact"}
LARGE = {"message_max_bytes": 5_000_000, "batch_size": 4_000_000}


def refusal(spark, tmp_path, sink, *columns: str) -> str:
    """Send a batch of ten rows through the sink, which must refuse it, and return what it says."""
    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    rows = numbers.selectExpr(*columns or ("string(value) AS value",))
    query = rows.writeStream.option("checkpointLocation", str(tmp_path / uuid.uuid4().hex)).foreachBatch(sink).start()
    try:
        with pytest.raises(StreamingQueryException) as failed:
            query.awaitTermination(120)
    finally:
        query.stop()
    said = str(failed.value)
    refused = re.search(r"errors\.(?:Sink|Row)Refused: (.*)", said, re.DOTALL)
    assert refused, said
    return refused[1]


@pytest.mark.long
@pytest.mark.parametrize("writers", WRITERS)
@pytest.mark.parametrize(
    ("settings", "columns", "options", "complaint"),
    [
        (TIMELESS, [], {}, "the clock of this machine"),
        (COMPACTED, [], {}, "takes no row whose column 'key' is null"),
        (
            {"max_message_bytes": "5000000", "segment_bytes": "1048576"},
            ["repeat('x', 2000000) AS value"],
            LARGE,
            "segm",
        ),
        ({"max_message_bytes": "100"}, ["repeat('x', 1000) AS value"], {}, "the topic's max.message.bytes"),
        ({}, ["'v' AS value", "7 AS partition"], {}, "names a partition that the topic does not have"),
        ({}, ["'v' AS value", "-7 AS partition"], {}, "names a partition that the topic does not have"),
    ],
    ids=["time", "row without a key", "segment", "large row", "partition", "negative partition"],
)
def test_topic_that_never_takes_the_rows_is_named_with_what_to_change(
    spark, broker, topic, sink_for, tmp_path, writers, settings, columns, options, complaint
):
    to = topic(**settings)
    said = refusal(spark, tmp_path, sink_for(to=to, writers=writers, driver_rows=0, **options), *columns)
    assert complaint in said
    assert to in said.replace(f"sink-of-{to}", "")


@pytest.mark.long
@pytest.mark.parametrize("name", ["not a name", "..", "ä"])
@pytest.mark.parametrize("writers", WRITERS)
def test_row_for_what_can_be_no_topic_is_refused_by_name(spark, broker, tmp_path, writers, name):
    options: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers, "writers": writers, "driver_rows": 0}
    sink = ExactlyOnceKafkaSink(f"many-{uuid.uuid4().hex[:8]}", **options)
    said = refusal(spark, tmp_path, sink, "'v' AS value", f"'{name}' AS topic")
    assert "column 'topic'" in said
    assert name in said


@pytest.mark.long
@pytest.mark.parametrize("writers", WRITERS)
def test_marker_topic_that_never_takes_the_marker_is_named(spark, topic, sink_for, tmp_path, writers):
    marker_topic = topic(cleanup_policy="compact", **TIMELESS)
    sink = sink_for(writers=writers, driver_rows=0, marker_topic=marker_topic)
    said = refusal(spark, tmp_path, sink)
    assert "the clock of this machine" in said
    assert marker_topic in said


@pytest.fixture(scope="module")
def too_few_brokers():
    """Yield a Kafka of one broker whose topics get three replicas, unless whoever creates one says otherwise."""
    with Broker(settings={"default.replication.factor": "3"}) as broker:
        yield broker.bootstrap_servers


@pytest.mark.long
@pytest.mark.parametrize("writers", WRITERS)
def test_marker_topic_that_cannot_be_created_is_refused_with_the_command_that_does_it(
    spark, too_few_brokers, tmp_path, writers
):
    name = f"rf-{uuid.uuid4().hex[:8]}"
    create_topic(too_few_brokers, name, 1, replication=1)
    options: dict[str, Any] = {"bootstrap_servers": too_few_brokers, "writers": writers}
    said = refusal(spark, tmp_path, ExactlyOnceKafkaSink(name, name, **options))
    assert f"no topic '{name}-marker' for the marker" in said
    assert (
        f"kafka-topics.sh --bootstrap-server {too_few_brokers} --create --topic {name}-marker --partitions 1 "
        "--config cleanup.policy=compact --config segment.bytes=1048576 --replication-factor 1"
    ) in said
    assert "Restart the query" not in said


@pytest.mark.long
def test_adopt_says_the_same_of_a_marker_topic_that_cannot_be_created(too_few_brokers, capsys):
    assert main(["adopt", "n", "--bootstrap-servers", too_few_brokers, "--batch", "0", "--query-id", "q"]) == 1
    assert "--create --topic n-marker" in (said := capsys.readouterr().err)
    assert "the marker cannot be reached" not in said


@pytest.mark.bench
def test_marker_topic_whose_name_is_anothers_to_kafka_asks_for_a_marker_topic(broker):
    name = f"a.{uuid.uuid4().hex[:8]}"
    for one in (name, name.replace(".", "_")):
        topic = MarkerStore(one, f"{one}-marker", broker.bootstrap_servers, {}).topic
        if one == name:
            topic.create(Deadline(30))
    with pytest.raises(MarkerTopicUnsafe, match=r"give the sink a marker_topic of another name"):
        topic.create(Deadline(30))
