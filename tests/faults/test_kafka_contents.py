"""Messages that librdkafka and Kafka once exchanged, read as they went over the wire; and every version there is."""

from __future__ import annotations

import pytest
from kafka.protocol.producer import produce, transaction
from kafka.record.memory_records import MemoryRecordsBuilder

from labs.faults.kafka_messages import (
    Batch,
    End,
    Granted,
    Record,
    Request,
    RequestHeader,
    Written,
    read_batches,
    read_end,
    read_ended,
    read_granted,
    read_request,
    read_written,
)

# Caught on the way between librdkafka 2 and Kafka 4, the client id being "driver 1 of sink".
PRODUCE = (
    "000000990000000a0000000700106472697665722031206f662073696e6b000573696e6bffff0000753002027402000000006800000000000000"
    "000000005b0000000002868265520010000000000000018bcfe568000000018bcfe568000000000000000000000000000000000000015200000001"
    "247b226970223a20227265636f72642033227d041062617463685f69640231086e6f6e6501000000"
)
WRITTEN = "000000300000000800020274020000000000000000000000000002ffffffffffffffff0000000000000000010000000000000000"
ABORT = "0000002b001a00010000000600106472697665722032206f662073696e6b000473696e6b0000000000000000000200"
FENCED = "0000000a0000000a00000000002f"
GRANTED = "0000001600000004000000000000000000000000000000000200"
BUSY = "000000160000000300000000000033ffffffffffffffffffff00"
COMPRESSED = (  # by lz4, for which the lab has no library
    "000000a80000000a0000000500106472697665722033206f662073696e6b000573696e6bffff0000753002027402000000007700000000000000"
    "000000006a000000000286b7ff2b001300000002000001a202b99556000001a202b9955600000000000000000003000000000000000304224d1860"
    "40822a0000009fde0f00000001d00f780100ffffffd71000f1031f02f103ffffffe01f04f103ffffffd750787878780000000000000000"
)


def header(kind: Request, version: int) -> RequestHeader:
    return RequestHeader(kind, version, 7, "driver 1 of sink")


def framed(kind, version: int, **fields) -> bytes:
    versioned = kind[version](**fields)
    versioned.with_header(correlation_id=7)
    return versioned.encode(header=True, framed=True)


def batch(transactional: bool = True, producer_id: int = 5, epoch: int = 3, sequence: int = 2) -> bytes:
    built = MemoryRecordsBuilder(2, 0, 1 << 20, 0, transactional, producer_id, epoch, sequence)
    for value in (b"first", b"second"):
        built.append(1_000, b"key", value, [("batch_id", b"4")])
    built.close()
    return bytes(built.buffer())


def produce_request(version: int, records: bytes) -> bytes:
    partition = produce.ProduceRequest.TopicProduceData.PartitionProduceData(index=6, records=records)
    topic = produce.ProduceRequest.TopicProduceData(name="topic", partition_data=[partition])
    return framed(produce.ProduceRequest, version, transactional_id="sink", acks=-1, topic_data=[topic])


def test_what_librdkafka_sends_is_read():
    sent = bytes.fromhex(PRODUCE)
    record = Record(None, b'{"ip": "record 3"}', {"batch_id": b"1", "none": None})
    assert read_batches(read_request(sent), sent) == [Batch("t", 0, True, 0, 0, 0, (record,))]
    end = bytes.fromhex(ABORT)
    assert read_end(read_request(end), end) == End(0, 2, committed=False)


def test_what_kafka_answers_is_read():
    assert read_written(header(Request.PRODUCE, 10), bytes.fromhex(WRITTEN)) == [Written("t", 0, 2, "ok")]
    assert read_ended(header(Request.END_TXN, 1), bytes.fromhex(FENCED)) == "fenced"
    asked = header(Request.INIT_PRODUCER_ID, 4)
    assert read_granted(asked, bytes.fromhex(GRANTED)) == Granted(0, 2, "ok")
    assert read_granted(asked, bytes.fromhex(BUSY)) == Granted(-1, -1, "ConcurrentTransactionsError")


@pytest.mark.parametrize("version", range(3, 13))
def test_records_are_read_in_every_version_that_names_topics(version):
    read = read_batches(header(Request.PRODUCE, version), produce_request(version, batch() + batch(sequence=4)))
    records = tuple(Record(b"key", value, {"batch_id": b"4"}) for value in (b"first", b"second"))
    assert read == [Batch("topic", 6, True, 5, 3, sequence, records) for sequence in (2, 4)]


def test_producer_without_an_epoch_says_so():
    [read] = read_batches(header(Request.PRODUCE, 9), produce_request(9, batch(False, -1, -1, -1)))
    assert (read.transactional, read.producer_id, read.epoch, read.base_sequence) == (False, -1, -1, -1)


@pytest.mark.parametrize("version", range(6))
def test_ends_and_epochs_are_read_in_every_version(version):
    numbers = {"producer_id": 5, "producer_epoch": 3}
    end = framed(transaction.EndTxnRequest, version, transactional_id="sink", committed=True, **numbers)
    assert read_end(header(Request.END_TXN, version), end) == End(5, 3, committed=True)
    ended = framed(transaction.EndTxnResponse, version, error_code=90)
    assert read_ended(header(Request.END_TXN, version), ended) == "fenced"
    granted = framed(transaction.InitProducerIdResponse, version, error_code=0, **numbers)
    assert read_granted(header(Request.INIT_PRODUCER_ID, version), granted) == Granted(5, 3, "ok")


@pytest.mark.parametrize(
    ("version", "frame", "why"),
    [
        (13, bytes.fromhex(PRODUCE), "it names topics only by their ids"),
        (10, bytes.fromhex(COMPRESSED), "lz4 compression codec not found"),
        (10, bytes.fromhex(PRODUCE)[:60], ""),
        (10, produce_request(10, batch()[:-1]), "its records end in the middle of a batch"),
        (10, produce_request(10, b"\x01\x02"), "its records end in the middle of a batch"),
        (99, bytes.fromhex(PRODUCE), ""),
    ],
)
def test_what_cannot_be_read_is_one_line_that_names_the_request(version, frame, why):
    with pytest.raises(ValueError, match=r"PRODUCE, version \d+, of driver 1 of sink cannot be read: \w") as refused:
        read_batches(header(Request.PRODUCE, version), frame)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)
