"""Transactions that the broker never ends by itself: `enable2Pc` of KIP-939, which Kafka 4.3.1 has not released yet.

A broker offers it with the settings UNRELEASED, and the transaction that such a producer prepares is open until
somebody ends it. Limitations: the broker refuses `keepPreparedTxn`, by which the restarted producer would keep what it
had prepared, with UNSUPPORTED_VERSION. So keep the three values, as `prepared` says. And a transaction that nobody
finishes hides all later records from read_committed readers forever.
"""

from __future__ import annotations

from kafka import KafkaProducer
from kafka.errors import NoError, UnsupportedVersionError, for_code
from kafka.producer.transaction_manager import ProducerIdAndEpoch, TransactionState
from kafka.protocol.producer.transaction import InitProducerIdRequest, InitProducerIdResponse

from labs.pipeline.two_phase.end_transaction import retry, transaction_coordinator
from labs.pipeline.two_phase.prepared import PreparedTransaction

UNRELEASED = {"unstable.api.versions.enable": "true", "transaction.two.phase.commit.enable": "true"}
VERSION = 6  # of InitProducerId, the first with `enable2Pc`
LONGEST = 60  # seconds that a coordinator may take to answer


def init_without_timeout(producer: KafkaProducer) -> None:
    """Do what `producer.init_transactions()` does, for transactions that do not time out.

    Raises what `epoch_without_timeout` raises.
    """
    config = producer.config
    epoch = epoch_without_timeout(
        config["bootstrap_servers"], config["transactional_id"], config["transaction_timeout_ms"]
    )
    manager = producer._transaction_manager  # it has no public way to take an epoch
    manager._transition_to(TransactionState.INITIALIZING)
    manager.set_producer_id_and_epoch(ProducerIdAndEpoch(epoch.producer_id, epoch.epoch))
    manager._transition_to(TransactionState.READY)


def epoch_without_timeout(
    servers: str, transactional_id: str, timeout_ms: int, keep_prepared: bool = False
) -> PreparedTransaction:
    """Return a new epoch, whose transactions do not time out, whatever `timeout_ms` says.

    Kafka aborts the transaction that the id has left open. With `keep_prepared` Kafka should keep it, but so far it
    refuses such a request with UnsupportedVersionError. Raises KafkaError, TimeoutError.
    """
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=-1,
        producer_epoch=-1,
        enable2_pc=True,
        keep_prepared_txn=keep_prepared,
    )

    def ask() -> PreparedTransaction:
        with transaction_coordinator(servers, transactional_id) as coordinator:
            if coordinator.newest_version(InitProducerIdRequest) < VERSION:
                raise UnsupportedVersionError(f"this Kafka does not offer enable2Pc; start it with {UNRELEASED}")
            answer = coordinator.ask(request, InitProducerIdResponse, version=VERSION)
        if (error := for_code(answer.error_code)) is not NoError:
            raise error()
        return PreparedTransaction(transactional_id, answer.producer_id, answer.producer_epoch)

    return retry(ask, LONGEST, f"{transactional_id} has no epoch")
