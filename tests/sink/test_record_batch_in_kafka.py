"""Kafka takes the record batches: its Java code reads them, and a broker writes them into a transaction."""

from __future__ import annotations

import functools
import random
import time
from typing import Any

import pytest
from kafka.protocol.producer.produce import ProduceRequest, ProduceResponse
from kafka.protocol.producer.transaction import (
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

from exactly_once_kafka.kafka_client.record_batch import CODECS, ProducerId, encode
from labs.equipment.waiting import eventually
from labs.evidence.readers.results import read_committed
from labs.pipeline.two_phase.end_transaction import BrokerConnection, transaction_coordinator
from tests.sink.conftest import headers_of
from tests.sink.random_rows import NOW_MS, OF_LAST, PRODUCER, TAGS, Row, arrow, random_rows, tagged

DOES_NOT_COMPRESS = Row(b"does not", random.Random(9).randbytes(200_000))


def each_of(iterable):
    """Yield what a collection of Java's has."""
    iterator = iterable.iterator()
    while iterator.hasNext():
        yield iterator.next()


def read_by_java(spark, batch: bytes) -> tuple[Any, list[Row]]:
    """Decode a batch by Kafka's own Java code, as its broker and its consumers do: return the batch and its rows."""
    jvm = spark._jvm
    records = jvm.org.apache.kafka.common.record.MemoryRecords.readableRecords(jvm.java.nio.ByteBuffer.wrap(batch))
    [decoded] = each_of(records.batches())
    decoded.ensureValid()
    bytes_of = jvm.org.apache.kafka.common.utils.Utils.toNullableArray
    rows = []
    for record in each_of(decoded):
        record.ensureValid()
        headers = [(header.key(), header.value()) for header in record.headers()]
        rows.append(Row(bytes_of(record.key()), bytes_of(record.value()), headers))
    return decoded, rows


@pytest.mark.bench
@pytest.mark.parametrize("codec", CODECS)
def test_java_reads_the_rows(spark, codec):
    rows = [*random_rows(9, 30), DOES_NOT_COMPRESS, Row(b"does", bytes(200_000))]
    encoded = functools.partial(encode, arrow(rows), PRODUCER, 2**31 - 1, NOW_MS, tags=TAGS, tags_of_last=OF_LAST)
    batch = encoded(compression=codec)
    decoded, found = read_by_java(spark, batch)
    assert found == tagged(rows, TAGS, OF_LAST)
    assert decoded.compressionType().toString() == codec
    assert decoded.isTransactional()
    assert (decoded.producerId(), decoded.producerEpoch()) == PRODUCER
    assert (decoded.baseSequence(), decoded.lastSequence()) == (2**31 - 1, len(rows) - 2)
    assert (decoded.baseOffset(), decoded.lastOffset(), decoded.maxTimestamp()) == (0, len(rows) - 1, NOW_MS)
    saved = len(encoded()) - len(batch)
    assert saved == 0 if codec == "none" else saved > 190_000


@pytest.mark.long
@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4", "snappy"])
def test_one_record_that_is_next_to_nothing_is_compressed_too(spark, codec):
    _, found = read_by_java(spark, encode(arrow([Row()]), PRODUCER, 0, NOW_MS, compression=codec))
    assert found == [Row()]


class Transaction:
    """The transaction of `name` by hand: its producer id, record batches as they are, and the commit."""

    def __init__(self, servers: str, name: str):
        self._servers, self._name = servers, name
        self.producer = eventually(self._begun)

    def append(self, topic: str, batch: bytes) -> bool:
        """Append a batch to partition 0, and say that it is there."""
        topics = ProduceRequest.TopicProduceData
        data = topics(name=topic, partition_data=[topics.PartitionProduceData(index=0, records=batch)])
        request = ProduceRequest(transactional_id=self._name, acks=-1, timeout_ms=5000, topic_data=[data])
        with BrokerConnection(self._servers) as broker:
            answer = broker.ask(request, ProduceResponse, version=12)
        assert answer.responses[0].partition_responses[0].error_code == 0
        return True

    def commit(self) -> None:
        producer_id, epoch = self.producer
        request = EndTxnRequest(
            transactional_id=self._name, producer_id=producer_id, producer_epoch=epoch, committed=True
        )
        with transaction_coordinator(self._servers, self._name) as coordinator:
            assert coordinator.ask(request, EndTxnResponse, version=5).error_code == 0

    def _begun(self) -> ProducerId:
        request = InitProducerIdRequest(
            transactional_id=self._name, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        with transaction_coordinator(self._servers, self._name) as coordinator:
            answer = coordinator.ask(request, InitProducerIdResponse, version=5)
        assert answer.error_code == 0
        return ProducerId(answer.producer_id, answer.producer_epoch)


@pytest.mark.long
def test_a_broker_takes_batches_of_every_codec_in_one_transaction(broker, topic):
    into, now_ms, sequence = topic(), int(time.time() * 1000), 0
    transaction, expected = Transaction(broker.bootstrap_servers, into), []
    for seed, codec in enumerate(CODECS):
        rows = [*random_rows(seed, 30), DOES_NOT_COMPRESS]
        batch = encode(arrow(rows), transaction.producer, sequence, now_ms, tags=TAGS, compression=codec)
        eventually(functools.partial(transaction.append, into, batch))
        sequence += len(rows)
        expected += tagged(rows, TAGS)
    assert read_committed(broker.bootstrap_servers, into) == []
    transaction.commit()
    committed = read_committed(broker.bootstrap_servers, into)
    assert [Row(each.key(), each.value(), headers_of(each)) for each in committed] == expected
    assert {each.timestamp()[1] for each in committed} == {now_ms}
