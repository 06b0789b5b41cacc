"""Requests and answers in every version that kafka-python can write, read by the proxy's eyes."""

from __future__ import annotations

import pytest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import produce, transaction

from labs.faults.kafka_messages import Answer, Request, RequestHeader, correlation_id, read_request

TRANSACTIONAL = {
    Request.PRODUCE: (produce.ProduceRequest, range(3, 14)),
    Request.INIT_PRODUCER_ID: (transaction.InitProducerIdRequest, range(6)),
    Request.ADD_PARTITIONS_TO_TXN: (transaction.AddPartitionsToTxnRequest, range(4)),
    Request.ADD_OFFSETS_TO_TXN: (transaction.AddOffsetsToTxnRequest, range(5)),
    Request.END_TXN: (transaction.EndTxnRequest, range(6)),
    Request.TXN_OFFSET_COMMIT: (transaction.TxnOffsetCommitRequest, range(6)),
}
ANSWERS = {
    Request.INIT_PRODUCER_ID: (transaction.InitProducerIdResponse, range(6)),
    Request.ADD_OFFSETS_TO_TXN: (transaction.AddOffsetsToTxnResponse, range(5)),
    Request.END_TXN: (transaction.EndTxnResponse, range(6)),
}


def framed(message, **who: str | None) -> bytes:
    message.with_header(correlation_id=7, **who)
    return message.encode(header=True, framed=True)


@pytest.mark.parametrize(
    ("kind", "version"), [(kind, version) for kind, (_, versions) in TRANSACTIONAL.items() for version in versions]
)
def test_transactional_id_is_read_in_every_version(kind, version):
    message_class, _ = TRANSACTIONAL[kind]
    field = "v3_and_below_transactional_id" if kind is Request.ADD_PARTITIONS_TO_TXN else "transactional_id"
    frame = framed(message_class[version](**{field: "höher"}), client_id="client")
    assert read_request(frame) == RequestHeader(
        kind, version, 7, "client", "höher", answered=kind is not Request.PRODUCE
    )


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_only_produce_with_acks_0_is_not_answered(version, acks):
    frame = framed(produce.ProduceRequest[version](transactional_id=None, acks=acks), client_id=None)
    assert read_request(frame) == RequestHeader(Request.PRODUCE, version, 7, None, None, answered=acks != 0)


@pytest.mark.parametrize("version", [4, 5])
def test_requests_of_brokers_for_many_transactions_name_none(version):
    request = read_request(framed(transaction.AddPartitionsToTxnRequest[version](transactions=[]), client_id=None))
    assert request.kind is Request.ADD_PARTITIONS_TO_TXN
    assert request.transactional_id is None


def test_other_requests_are_read_as_far_as_their_client_id():
    assert read_request(framed(MetadataRequest[9](topics=[]), client_id="client")) == RequestHeader(
        Request.METADATA, 9, 7, "client"
    )
    unknown = b"\x00\x00\x00\x0a" + b"\x7f\xff" + b"\x00\x00" + b"\x00\x00\x00\x07" + b"\xff\xff"
    assert read_request(unknown) == RequestHeader(Request.OTHER, 0, 7)


@pytest.mark.parametrize(
    "frame", [b"", b"\x00\x00\x00\x02\x00\x00", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x7f\x7f\x7f\x7f"]
)
def test_what_is_not_a_request_is_refused(frame):
    with pytest.raises(ValueError, match="not a Kafka request in plain text"):
        read_request(frame)


@pytest.mark.parametrize(
    ("kind", "version"), [(kind, version) for kind, (_, versions) in ANSWERS.items() for version in versions]
)
def test_error_code_of_an_answer_is_read_in_every_version(kind, version):
    message_class, _ = ANSWERS[kind]
    request = RequestHeader(kind, version, 7)
    frame = framed(message_class[version](throttle_time_ms=1 << 20, error_code=48))
    assert correlation_id(frame) == 7
    assert (Answer(request, frame).error_code, Answer(request, frame).error) == (48, "InvalidTxnStateError")
    assert Answer(request, framed(message_class[version](error_code=0))).error is None


def test_answers_that_do_not_begin_with_an_error_code_have_none():
    assert Answer(RequestHeader(Request.FETCH, 12, 7), b"\x00\x00\x00\x04\x00\x00\x00\x07").error_code is None
