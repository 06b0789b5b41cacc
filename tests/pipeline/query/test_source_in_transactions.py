"""A source whose producer uses transactions: what it aborts is not counted, and an open transaction is waited for."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from labs.evidence.checkpoint.planned_results import read_source_records
from labs.pipeline.query.ip_count import parse_records, read_source
from labs.pipeline.records import source_value

pytestmark = pytest.mark.long

ABORTED, COMMITTED = "192.0.2.66", "192.0.2.1"


@pytest.fixture
def source(broker, topic):
    """Fill a topic by a producer whose first transaction is aborted, the second committed, and the third still open."""
    name = topic()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(30)
    for ip, end in ((ABORTED, producer.abort_transaction), (COMMITTED, producer.commit_transaction), (ABORTED, None)):
        producer.begin_transaction()
        for time_ms in range(3):
            producer.produce(name, source_value(time_ms, ip))
        producer.flush(30)
        if end:
            end(30)
    yield name
    producer.abort_transaction(30)


@pytest.mark.parametrize("limit", [None, 2])
def test_only_committed_records_of_the_source_are_counted(spark, broker, source, tmp_path, limit):
    read: list[str] = []
    records = parse_records(read_source(spark, broker.bootstrap_servers, source, records_per_batch=limit))
    writer = records.writeStream.foreachBatch(lambda rows, _: read.extend(row.ip for row in rows.collect()))
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    assert read == [COMMITTED] * 3
    planned = [ip for _, _, _, ip in read_source_records(broker.bootstrap_servers, source)]
    assert planned == read
