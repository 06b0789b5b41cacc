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

    no_marker = "no marker: nothing was ever committed under this name, or the marker has expired"

    def __init__(self, name: str, batch_id: int, query_id: str, found: str):
        super().__init__(
            f"sink {name!r} refuses batch {batch_id} of query {query_id}.\n"
            f"  found:    {found}\n"
            f"  expected: batch {batch_id - 1 if batch_id else 'none'} of this query, or this batch itself\n"
            "  causes:   the checkpoint was deleted, or an older copy of it restored; another query uses the name; "
            "or the query rested longer than offsets.retention.minutes\n"
            "  to do:    restore the checkpoint; or give a new query a new name; or, knowing which batch of this "
            f"checkpoint the topic holds last: python -m labs sink adopt {name} (its --help says how)"
        )


class BatchFailed(RuntimeError):
    """The batch was not published, or it is not known whether it was; restart the query and it is repeated."""


def explain(error: Exception, name: str, batch_id: int, elapsed: float, timeout: float) -> str:
    """Turn a Kafka error into a sentence that names the cause and the setting. Times in seconds."""
    start = f"sink {name!r}, batch {batch_id}: "
    code = error.args[0].code() if isinstance(error, KafkaException) else None
    if code in FENCED and elapsed >= timeout:
        why = (
            f"the transaction was open for {elapsed:.1f} s and the broker aborted it, since transaction.timeout.ms is "
            f"{timeout * 1000:.0f}. Nothing is lost; raise transaction_timeout_ms above the longest batch"
        )
    elif code in NO_SUCH_TOPIC:
        why = f"Kafka has no such topic or partition ({error.args[0].str()}). Create it first"
    elif code in FENCED:
        why = "fenced: a newer producer of this name has taken over, in another query or a restarted one"
    else:
        why = f"Kafka said: {error}"
    return f"{start}{why}. Restart the query: the batch is repeated and published once"
