"""Phase two: commit or abort a prepared transaction, from any process, with one request to its coordinator.

Guarantee: when `finish` returns, the outcome is durable at the coordinator; readers see it as soon as the
coordinator has written it to every partition. Asking again for the same outcome changes nothing.
Where it stops: a transaction that the broker has aborted is lost, and no request brings it back.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafka.errors import KafkaError, NoError, TransactionalIdNotFoundError, for_code
from kafka.protocol.admin.transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from kafka.protocol.producer.transaction import EndTxnRequest, EndTxnResponse

from labs.pipeline.two_phase.kafka_request import BrokerConnection, patiently, transaction_coordinator
from labs.pipeline.two_phase.prepared import PreparedTransaction

COMMITTED, ABORTED = ("PrepareCommit", "CompleteCommit"), ("PrepareAbort", "CompleteAbort")


class FinishFailed(RuntimeError):
    """The transaction has not ended as it should, and never will."""


class TransactionLost(FinishFailed):
    """It should have been committed, and the coordinator had aborted it: its records are lost for good."""


@dataclass(frozen=True)
class TransactionState:
    """What the coordinator says of a transactional id: the state by Kafka's name for it."""

    state: str
    producer_id: int
    epoch: int
    timeout_ms: int

    def is_of(self, prepared: PreparedTransaction) -> bool:
        """Tell whether this is about that transaction: the end of one, or its timeout, may raise the epoch by one."""
        return self.producer_id == prepared.producer_id and self.epoch - prepared.epoch in (0, 1)


def finish(prepared: PreparedTransaction, commit: bool, bootstrap_servers: str, timeout: float = 60) -> None:
    """Commit the transaction, or abort it, unless that has been done already.

    Retries for `timeout` seconds while the coordinator is away, moving, or busy with this very transaction.
    Raises TransactionLost, FinishFailed; and TimeoutError when the outcome is not known.
    """
    doubt = f"whether {prepared.transactional_id} is {_participle(commit)} is not known (finish it again, at no risk)"
    patiently(lambda: end_once(prepared, commit, bootstrap_servers), timeout, doubt)


def end_once(prepared: PreparedTransaction, commit: bool, bootstrap_servers: str) -> None:
    """Send one EndTxn. Raises as `finish` does, and a retriable KafkaError or OSError where it would retry."""
    with transaction_coordinator(bootstrap_servers, prepared.transactional_id) as coordinator:
        request = EndTxnRequest(
            transactional_id=prepared.transactional_id,
            producer_id=prepared.producer_id,
            producer_epoch=prepared.epoch,
            committed=commit,
        )
        answer = coordinator.ask(request, EndTxnResponse, version=_end_txn_version(coordinator))
        error = for_code(answer.error_code)
        if error is NoError:
            return
        if error.retriable:
            raise error(f"EndTxn of {prepared.transactional_id}: {error.description}")
        _judge(prepared, commit, error, describe(prepared.transactional_id, coordinator))


def _end_txn_version(coordinator: BrokerConnection) -> int:
    """Return the version that Kafka's own clients would use.

    From 5 on, EndTxn gives the producer a new epoch, which fences a preparer that only seemed dead. A cluster
    without that feature must not get one: 4.3.1 refuses it and is then stuck with CONCURRENT_TRANSACTIONS.
    """
    return 5 if coordinator.features().get("transaction.version", 0) >= 2 else 4


def describe(transactional_id: str, coordinator: BrokerConnection) -> TransactionState | None:
    """Return what the coordinator knows of an id, None if nothing. Raises KafkaError, such as that it is loading."""
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    [found] = coordinator.ask(request, DescribeTransactionsResponse, version=0).transaction_states
    error = for_code(found.error_code)
    if error is TransactionalIdNotFoundError:
        return None
    if error is not NoError:
        raise error(f"describing {transactional_id}: {error.description}")
    return TransactionState(
        found.transaction_state, found.producer_id, found.producer_epoch, found.transaction_timeout_ms
    )


def _judge(
    prepared: PreparedTransaction, commit: bool, refusal: type[KafkaError], now: TransactionState | None
) -> None:
    """Return if the transaction had ended as asked before; raise if it had ended otherwise."""
    refused = f"{prepared} cannot be {_participle(commit)}; Kafka answered {refusal.__name__}, because "
    if now is None:
        raise FinishFailed(f"{refused}it knows no transaction of that id: is this the cluster that it was prepared in?")
    if now.is_of(prepared) and now.state in (COMMITTED if commit else ABORTED):
        return
    if commit and now.is_of(prepared) and now.state in ABORTED:
        raise TransactionLost(
            f"{refused}it was aborted. Its timeout was {now.timeout_ms / 1000:g} s, and must be longer than the "
            "longest time from begin to commit, outages included. The records are lost unless their source "
            "still has them"
        )
    if not commit and now.is_of(prepared) and now.state in COMMITTED:
        raise FinishFailed(f"{refused}it was committed: two processes decided differently")
    raise FinishFailed(
        f"{refused}a newer producer has taken the id over: it is now {now.state} with producer id {now.producer_id} "
        f"and epoch {now.epoch}. If this one was still open then, it was aborted: finish what a dead run prepared "
        "before a producer of the same id starts"
    )


def _participle(commit: bool) -> str:
    return "committed" if commit else "aborted"
