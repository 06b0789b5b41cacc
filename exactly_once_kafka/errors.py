"""What the exactly-once sink says when it will not, or could not, publish a batch."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

FENCED = {
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.INVALID_TXN_STATE,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
}
NO_SUCH_TOPIC = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}


class SinkRefused(RuntimeError):
    """Publishing this batch could lose or double rows; an operator has to decide."""


class RowRefused(SinkRefused, ValueError):
    """A row of this batch cannot be published, and no restart will change that: the query or the place has to."""


class BatchFailed(RuntimeError):
    """The batch was not published, or it is not known whether it was; restart the query and it is repeated."""


class Incomplete(RuntimeError):
    """Tasks of the batch did not write each of its rows once."""


class Undecidable(RuntimeError):
    """Kafka left rows open that it took for decided, and nobody knows how they were to end: there is where they are."""


# What an operator has to grant, where the error does not say it itself.
NOT_ALLOWED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "READ and WRITE the sink's topics",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "READ group {name!r}",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "WRITE to transactional id {name!r}",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "IDEMPOTENT_WRITE on the cluster",
}


def explain(error: Exception, name: str, batch_id: int, elapsed: float, timeout: float) -> str:
    """Turn an error into a sentence that names the cause and the setting. Times in seconds."""
    why, to_do = _why(error, name, elapsed, timeout)
    return f"sink {name!r}, batch {batch_id}: {why}. {to_do}: the batch is repeated and published once"


def undecided(error: Undecidable, siblings: str) -> str:
    """Say what Kafka left open, and how to find out how it was to end: as its `siblings` did."""
    return (
        f"Kafka called a transaction complete, left rows of it open in {error}, and nobody knows any more how it "
        f"ended. Read them with read_uncommitted. If {siblings} are to be seen with read_committed, it was committed: "
        "copy them by hand. Then, or if it was aborted, have kafka-transactions.sh abort them, and restart the query"
    )


def _why(error: Exception, name: str, elapsed: float, timeout: float) -> tuple[str, str]:
    """Return what happened, and what to do for the batch to be repeated."""
    if isinstance(error, Incomplete):
        return f"{error}: it was aborted", "Restart the query"
    code = error.args[0].code() if isinstance(error, KafkaException) else None
    said = error.args[0].str() if isinstance(error, KafkaException) else str(error)
    if code in FENCED and elapsed >= timeout:
        return (
            f"after {elapsed:.1f} s the transaction is no longer open: the broker aborted it, since "
            f"transaction.timeout.ms is {timeout * 1000:.0f}, or a newer producer of this name has taken over. Nothing "
            "is lost",
            "If no other query has the name, raise transaction_timeout_ms above the longest batch; restart the query",
        )
    if code == KafkaError.INVALID_PRODUCER_ID_MAPPING:
        return (
            "Kafka does not know this producer any more: its transactional id has expired, which takes "
            "transactional.id.expiration.ms (a week, unless set), or a newer producer of this name has taken over",
            "Restart the query",
        )
    if code in FENCED:
        return (
            "fenced: a newer producer of this name has taken over, in another query or a restarted one",
            "Restart the query",
        )
    if code in NOT_ALLOWED:
        what = said if said.startswith("not allowed") else f"not allowed to {NOT_ALLOWED[code].format(name=name)}"
        return f"{what} (Kafka said: {said})", "Grant it to the sink's user and restart the query"
    if code in NO_SUCH_TOPIC:
        return f"Kafka has no such topic or partition ({said})", "Create it and restart the query"
    if code == KafkaError.MSG_SIZE_TOO_LARGE:
        return (
            f"a row, or a batch of rows, is larger than the topic's max.message.bytes (Kafka said: {said})",
            "Raise it, or set the sink's message_max_bytes to it, and restart the query",
        )
    if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        return (
            f"transaction_timeout_ms is {timeout * 1000:.0f}, which is more than the broker's "
            "transaction.max.timeout.ms (900000, unless set) allows",
            "Lower the one or raise the other and restart the query",
        )
    return f"Kafka said: {error}", "Restart the query"
