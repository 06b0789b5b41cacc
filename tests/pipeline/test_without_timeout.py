"""What KIP-939 gives on this Kafka: prepared transactions that outlive their timeout; and what it does not give yet."""

from __future__ import annotations

import uuid

import pytest
from kafka import KafkaProducer
from kafka.errors import TransactionalIdAuthorizationFailedError, UnsupportedVersionError

from labs.equipment.broker import Broker
from labs.equipment.topics import create_topic
from labs.evidence.readers.results import read_committed
from labs.evidence.readers.transactions import read_transactions, settle, wait_until_ended
from labs.pipeline.two_phase.end_transaction import finish, lingering
from labs.pipeline.two_phase.prepared import PreparedTransaction
from labs.pipeline.two_phase.without_timeout import UNRELEASED, epoch_without_timeout, init_without_timeout

pytestmark = pytest.mark.long

TIMEOUT = 2_000  # ms


@pytest.fixture(scope="module")
def unreleased():
    with Broker(settings=UNRELEASED) as broker:
        yield broker.bootstrap_servers


def prepare(servers: str, topic: str, init=KafkaProducer.init_transactions) -> PreparedTransaction:
    """Write a record into a transaction, and leave it: nothing of its producer is there any more."""
    producer = KafkaProducer(
        bootstrap_servers=servers, transactional_id=uuid.uuid4().hex, transaction_timeout_ms=TIMEOUT
    )
    init(producer)
    producer.begin_transaction()
    producer.send(topic, b"prepared")
    producer.flush()
    epoch = producer._transaction_manager.producer_id_and_epoch
    producer.close(timeout=0)
    return PreparedTransaction(producer.config["transactional_id"], epoch.producer_id, epoch.epoch)


def test_it_outlives_its_timeout_and_is_committed_by_somebody_else(unreleased):
    topic = create_topic(unreleased, uuid.uuid4().hex, 1)
    ours = prepare(unreleased, topic, init_without_timeout)
    other = prepare(unreleased, topic)  # after it, and with the same timeout
    assert wait_until_ended(unreleased, other.transactional_id).state == "CompleteAbort"
    assert lingering(unreleased, ours.transactional_id) == [ours]
    assert not read_committed(unreleased, topic)
    finish(ours, True, unreleased)
    settle(unreleased, topic)
    assert [record.value() for record in read_committed(unreleased, topic)] == [b"prepared"]


def test_the_next_epoch_ends_what_was_left_open(unreleased):
    topic = create_topic(unreleased, uuid.uuid4().hex, 1)
    left = prepare(unreleased, topic, init_without_timeout)
    now = epoch_without_timeout(unreleased, left.transactional_id, TIMEOUT)
    assert now > left
    assert lingering(unreleased, left.transactional_id) == []


def test_to_take_up_what_was_prepared_is_refused_and_harms_nothing(unreleased):
    topic = create_topic(unreleased, uuid.uuid4().hex, 1)
    left = prepare(unreleased, topic, init_without_timeout)
    with pytest.raises(UnsupportedVersionError):
        epoch_without_timeout(unreleased, left.transactional_id, TIMEOUT, keep_prepared=True)
    assert lingering(unreleased, left.transactional_id) == [left]
    finish(left, False, unreleased)


def test_a_kafka_as_it_is_released_refuses(broker):
    with pytest.raises(UnsupportedVersionError, match="does not offer enable2Pc"):
        epoch_without_timeout(broker.bootstrap_servers, "whoever", TIMEOUT)


def test_one_of_the_two_settings_is_not_enough():
    [versions, _] = UNRELEASED
    with Broker(settings={versions: "true"}) as broker, pytest.raises(TransactionalIdAuthorizationFailedError):
        epoch_without_timeout(broker.bootstrap_servers, "whoever", TIMEOUT)


def test_its_state_is_told_like_any_other(unreleased):
    topic = create_topic(unreleased, uuid.uuid4().hex, 1)
    ours = prepare(unreleased, topic, init_without_timeout)
    [seen] = [each for each in read_transactions(unreleased) if each.transactional_id == ours.transactional_id]
    assert seen.state == "Ongoing"
    finish(ours, False, unreleased)
