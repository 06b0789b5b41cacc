"""Phase two: commit or abort a prepared transaction, from any process, with one request to its coordinator.

Guarantee: when `finish` returns, the outcome is durable at the coordinator; readers see it as soon as the
coordinator has written it to every partition. Asking again for the same outcome changes nothing.
Limitations: a transaction that the broker has aborted is lost, and no request brings it back.

The request goes over a connection of its own; kafka-python's protocol classes write it and read the response. Plain
text only, neither TLS nor SASL.

`lingering` lists the open transactions. A broker that has just come back answers before it has read its transaction
log, and lists none. Only a request about one transactional id shows that (NOT_COORDINATOR,
COORDINATOR_LOAD_IN_PROGRESS). So `lingering` asks for an id in each partition of that log first: a coordinator that
answers "no such id" has read the partition.
"""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar

from kafka.errors import KafkaError, NoError, TransactionalIdNotFoundError, for_code
from kafka.protocol.admin.transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    CoordinatorType,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kafka.protocol.producer.transaction import EndTxnRequest, EndTxnResponse

from labs.equipment.topics import admin
from labs.pipeline.two_phase.prepared import PreparedTransaction

LENGTH = 4  # bytes in front of each message
CLIENT_ID = "labs-two-phase"
BETWEEN_RETRIES = 0.05  # seconds
A_MOMENT, ANSWER = 0.5, 5.0  # seconds to wait for one answer of a broker: briefly, and for longer

Answer = TypeVar("Answer")


class BrokerConnection:
    """A connection to the broker at `address` (host:port). Raises OSError whenever the broker cannot be reached."""

    def __init__(self, address: str, timeout: float = ANSWER):
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host.strip("[]"), int(port)), timeout)
        self._responses: BinaryIO = self._socket.makefile("rb")
        self._correlation_ids = itertools.count()

    def ask(self, request: Any, response: type[Any], version: int) -> Any:
        """Send a request in this version and return its response."""
        request.with_header(correlation_id=next(self._correlation_ids), client_id=CLIENT_ID)
        self._socket.sendall(request.encode(version=version, header=True, framed=True))
        return response.decode(read_message(self._responses), version=version, header=True, framed=True)

    def features(self) -> dict[str, int]:
        """Return the features that the cluster has enabled, each with its level, such as transaction.version: 2."""
        return {feature.name: feature.max_version_level for feature in self._offers().finalized_features}

    def newest_version(self, request: type[Any]) -> int:
        """Return the newest version in which the broker takes such a request, -1 if in none."""
        return next((each.max_version for each in self._offers().api_keys if each.api_key == request.API_KEY), -1)

    def _offers(self) -> Any:
        request = ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version="1")
        return self.ask(request, ApiVersionsResponse, version=3)

    def close(self) -> None:
        self._responses.close()
        self._socket.close()

    def __enter__(self) -> BrokerConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_message(responses: BinaryIO) -> bytes:
    """Read one message of Kafka's, with its length in front. Raises ConnectionError if it is not whole."""
    length = responses.read(LENGTH)
    size = int.from_bytes(length, "big")
    content = responses.read(size)
    if not content or len(content) < size:
        raise ConnectionError("the broker hung up instead of answering")
    return length + content


def transaction_coordinator(bootstrap_servers: str, transactional_id: str) -> BrokerConnection:
    """Connect to the broker that coordinates the transactions of this id. Raises OSError, KafkaError."""
    found = _first_answer(bootstrap_servers, transactional_id)
    if found.error_code:
        raise for_code(found.error_code)(f"no coordinator for {transactional_id!r}: {found.error_message}")
    return BrokerConnection(f"{found.host}:{found.port}")


def _first_answer(bootstrap_servers: str, transactional_id: str) -> FindCoordinatorResponse:
    """Ask each broker briefly, and then each for longer: a frozen broker accepts the connection and never answers."""
    addresses = bootstrap_servers.split(",")
    waits = (A_MOMENT, ANSWER) if len(addresses) > 1 else (ANSWER,)
    for seconds, address in itertools.product(waits, addresses):
        try:
            with BrokerConnection(address, seconds) as broker:
                request = FindCoordinatorRequest(key=transactional_id, key_type=CoordinatorType.TRANSACTION.value)
                return broker.ask(request, FindCoordinatorResponse, version=3)
        except OSError as error:
            last = error
    raise last


def retry(attempt: Callable[[], Answer], timeout: float, doubt: str) -> Answer:
    """Return the result of `attempt`; repeat it for `timeout` seconds on an OSError or a retriable KafkaError.

    Raises TimeoutError, which begins with `doubt` and names the last failure. Other errors are passed on.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            return attempt()
        except (KafkaError, OSError) as error:
            if isinstance(error, KafkaError) and not error.retriable:
                raise
            if time.monotonic() > deadline:
                last = f"{type(error).__name__}: {error}"
                raise TimeoutError(f"{doubt} after {timeout:g} s; the last try ended in {last}") from error
        time.sleep(BETWEEN_RETRIES)


COMMITTED, ABORTED = ("PrepareCommit", "CompleteCommit"), ("PrepareAbort", "CompleteAbort")


class FinishFailed(RuntimeError):
    """The transaction has not ended as it should, and never will."""


class TransactionLost(FinishFailed):
    """It should have been committed, and the coordinator had aborted it: its records are lost for good."""


@dataclass(frozen=True)
class TransactionState:
    """What the coordinator says of a transactional id. `state` is Kafka's own name, such as "Ongoing"."""

    state: str
    producer_id: int
    epoch: int
    timeout_ms: int

    def is_of(self, prepared: PreparedTransaction) -> bool:
        """Tell whether this is about that transaction, whose end or timeout may have raised the epoch by one."""
        return self.producer_id == prepared.producer_id and self.epoch - prepared.epoch in (0, 1)


def finish(prepared: PreparedTransaction, commit: bool, bootstrap_servers: str, timeout: float = 60) -> None:
    """Commit the transaction, or abort it, unless that has been done already.

    Retries for `timeout` seconds while the coordinator is away, moving, or busy with this very transaction.
    Raises TransactionLost, FinishFailed; and TimeoutError when the outcome is not known.
    """
    doubt = f"whether {prepared.transactional_id} is {_participle(commit)} is not known (finish it again, at no risk)"
    retry(lambda: end_once(prepared, commit, bootstrap_servers), timeout, doubt)


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
        _raise_unless_done(prepared, commit, error, describe(prepared.transactional_id, coordinator))


def _end_txn_version(coordinator: BrokerConnection) -> int:
    """Return the version that Kafka's own clients would use.

    From version 5 on, EndTxn gives the producer a new epoch, which fences a producer that only seemed dead. A cluster
    without that feature must not get version 5: Kafka 4.3.1 refuses it and then always answers CONCURRENT_TRANSACTIONS.
    """
    return 5 if coordinator.features().get("transaction.version", 0) >= 2 else 4


def describe(transactional_id: str, coordinator: BrokerConnection) -> TransactionState | None:
    """Return the state of an id, None if the coordinator has no such id. Raises KafkaError, as while it loads."""
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


def _raise_unless_done(
    prepared: PreparedTransaction, commit: bool, refusal: type[KafkaError], now: TransactionState | None
) -> None:
    """Return if the transaction had already ended as requested; otherwise raise TransactionLost or FinishFailed."""
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
    if now.is_of(prepared):
        raise FinishFailed(f"{refused}its state is {now.state}")
    raise FinishFailed(
        f"{refused}a newer producer has taken the id over: it is now {now.state} with producer id {now.producer_id} "
        f"and epoch {now.epoch}. If this one was still open then, it was aborted: finish what a dead run prepared "
        "before a producer of the same id starts"
    )


def _participle(commit: bool) -> str:
    return "committed" if commit else "aborted"


TRANSACTION_LOG = "__transaction_state"


def lingering(bootstrap_servers: str, prefix: str, timeout: float = 60) -> list[PreparedTransaction]:
    """Return the transactions that are open now under transactional ids that begin with `prefix`.

    Raises TimeoutError if the coordinators do not answer within `timeout` seconds, for example while they load.
    """
    return retry(lambda: _open_now(bootstrap_servers, prefix), timeout, "what is open is not known")


def _open_now(bootstrap_servers: str, prefix: str) -> list[PreparedTransaction]:
    with admin(bootstrap_servers) as kafka:
        [log] = kafka.describe_topics([TRANSACTION_LOG])
        for transactional_id in _one_per_partition(len(log["partitions"])):
            with transaction_coordinator(bootstrap_servers, transactional_id) as coordinator:
                describe(transactional_id, coordinator)  # raises a retriable error unless that partition is loaded
        listed = [
            each.transactional_id
            for broker in kafka.list_transactions(state_filters=["Ongoing"]).values()
            for each in broker
        ]
        found = []
        for transactional_id in sorted(filter(lambda each: each.startswith(prefix), listed)):
            try:
                [now] = kafka.describe_transactions([transactional_id]).values()
            except TransactionalIdNotFoundError:  # expired since it was listed
                continue
            if now.state.value == "Ongoing":
                found.append(PreparedTransaction(transactional_id, now.producer_id, now.producer_epoch))
        return found


def _one_per_partition(partitions: int) -> Iterator[str]:
    """Yield a transactional id for each partition of the transaction log."""
    missing = set(range(partitions))
    for number in itertools.count():
        if not missing:
            return
        transactional_id = f"labs-is-loaded-{number}"
        if (partition := partition_of(transactional_id, partitions)) in missing:
            missing.remove(partition)
            yield transactional_id


def partition_of(transactional_id: str, partitions: int) -> int:
    """Return the partition of the transaction log whose leader is the id's coordinator.

    That is `Utils.abs(id.hashCode()) % partitions`, in Java's 32-bit arithmetic.
    """
    code = 0
    for unit in memoryview(transactional_id.encode("utf-16-le")).cast("H"):
        code = (31 * code + unit) & 0xFFFFFFFF
    signed = code - (1 << 32) if code >> 31 else code
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions
