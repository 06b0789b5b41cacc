"""The errors of the exactly-once sink, and what each error of Kafka means for it.

A *permanent* error comes again with every restart until somebody changes something: the sink raises SinkRefused. Any
other error may be gone after a restart: the sink raises BatchFailed. PERMANENT and PASSING have the codes of Kafka's
protocol and of librdkafka as numbers, since older clients lack the newer names. A test lists all other codes of both
client libraries, so that somebody decides about each new one.

The error that a call raises does not always say why the transaction failed; `root_error` asks librdkafka for the cause.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

FENCED = {
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.INVALID_TXN_STATE,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
}
NO_SUCH_TOPIC = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
NOT_LET_IN = {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED}
CANNOT_CONNECT = {KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE}
# A coordinator or leader is being elected or has moved to another broker; or a transaction that commits an offset of
# the group is open; or no broker answered.
NO_ANSWER_YET = {
    KafkaError._TIMED_OUT,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
}


NOT_ALLOWED = "not allowed to "  # the start of a text that names the missing permission


class SinkRefused(RuntimeError):
    """A restart alone does not help: the sink could lose or duplicate rows, or Kafka would refuse them again."""


class RowRefused(SinkRefused, ValueError):
    """A row of this batch cannot be published until somebody changes the query or the destination."""


class BatchFailed(RuntimeError):
    """The batch was not published, or it is not known whether it was. A restart of the query repeats it."""


class IncompleteWrite(RuntimeError):
    """The tasks of the batch did not write each row exactly once."""


class OutcomeUnknown(RuntimeError):
    """Kafka left rows open, and does not know whether they were committed. The message lists their partitions."""


class Meaning(NamedTuple):
    """What an error means, and what to do about it. Messages replace `{name}` by the sink's name, and quote Kafka."""

    why: str
    to_do: str


_OPTION = Meaning("Kafka or its client rejects an option of the sink", "Change that option")
_TOO_OLD = Meaning(
    "this Kafka lacks what the sink needs, or has it switched off",
    "Use Kafka 2.5 or later, and do not downgrade the brokers' features",
)
_TOPIC_SETTINGS = Meaning("Kafka refuses the settings of a topic", "Create the topic yourself")
_LOGIN = Meaning(
    "Kafka does not let the sink in",
    "Change security_protocol and the sasl_ options to what the broker expects: mechanism, user and password",
)
_BAD_RECORD = Meaning(
    "Kafka refuses a row; a topic with cleanup.policy=compact takes no row whose column 'key' is null or absent",
    "Give each row a key, or use a topic that is not compacted",
)

# These errors come again with every restart, until somebody does what is said here.
PERMANENT: dict[int, Meaning] = {
    -190: Meaning(  # _UNKNOWN_PARTITION
        "the column 'partition' of a row names a partition that the topic does not have",
        "Give the topic more partitions, or mend the column",
    ),
    -186: _OPTION,  # _INVALID_ARG
    -181: Meaning(  # _SSL
        "TLS with Kafka fails",
        "Change security_protocol and the ssl_ options to what the broker expects: ssl_ca_location must name the "
        "certificate that signed the broker's, and the broker's certificate must be valid and have its address",
    ),
    -171: _TOO_OLD,  # _UNKNOWN_PROTOCOL
    -170: _OPTION,  # _NOT_IMPLEMENTED
    -169: _LOGIN,  # _AUTHENTICATION
    -165: _TOO_OLD,  # _UNSUPPORTED_FEATURE
    -154: _OPTION,  # _INVALID_TYPE
    -145: _OPTION,  # _NOT_CONFIGURED
    -138: _BAD_RECORD,  # _INVALID_DIFFERENT_RECORD
    10: Meaning(  # MSG_SIZE_TOO_LARGE
        "a row, or a batch of rows, is larger than the topic's max.message.bytes",
        "Raise max.message.bytes, or set the sink's message_max_bytes to the same",
    ),
    17: Meaning(  # TOPIC_EXCEPTION
        "Kafka does not allow a topic of this name, or lets no client write to it",
        "Give the sink another topic, or mend the column 'topic'",
    ),
    18: Meaning(  # RECORD_LIST_TOO_LARGE
        "a batch of rows is larger than the topic's segment.bytes",
        "Raise segment.bytes, or set the sink's batch_size below it",
    ),
    21: _OPTION,  # INVALID_REQUIRED_ACKS
    24: Meaning(  # INVALID_GROUP_ID
        "Kafka does not accept the sink's name {name!r} as a group's", "Give the sink another name"
    ),
    32: Meaning(  # INVALID_TIMESTAMP
        "Kafka refuses the time of a record: the clock of this machine, or of an executor's, is wrong; or the topic's "
        "message.timestamp.before.max.ms or message.timestamp.after.max.ms (1 hour, unless set) is too narrow",
        "Set the clock, or raise these settings",
    ),
    33: _LOGIN,  # UNSUPPORTED_SASL_MECHANISM
    34: _LOGIN,  # ILLEGAL_SASL_STATE
    35: _TOO_OLD,  # UNSUPPORTED_VERSION
    37: _TOPIC_SETTINGS,  # INVALID_PARTITIONS
    38: _TOPIC_SETTINGS,  # INVALID_REPLICATION_FACTOR
    39: _TOPIC_SETTINGS,  # INVALID_REPLICA_ASSIGNMENT
    40: _TOPIC_SETTINGS,  # INVALID_CONFIG
    42: _OPTION,  # INVALID_REQUEST
    43: Meaning(  # UNSUPPORTED_FOR_MESSAGE_FORMAT
        "the topic has records of a format without transactions", "Give the sink a new topic"
    ),
    44: Meaning("a policy of the brokers forbids it", "Follow that policy"),  # POLICY_VIOLATION
    50: Meaning(  # INVALID_TRANSACTION_TIMEOUT
        "transaction_timeout_ms is {timeout_ms:.0f}, which is more than the broker's transaction.max.timeout.ms "
        "(900000, unless set) allows",
        "Lower transaction_timeout_ms or raise transaction.max.timeout.ms",
    ),
    54: _LOGIN,  # SECURITY_DISABLED
    58: _LOGIN,  # SASL_AUTHENTICATION_FAILED
    76: Meaning(  # UNSUPPORTED_COMPRESSION_TYPE
        "the broker does not know the compression", "Set the sink's compression_type to another"
    ),
    87: _BAD_RECORD,  # INVALID_RECORD
    114: Meaning(  # MISMATCHED_ENDPOINT_TYPE
        "bootstrap_servers names controllers", "Name the brokers' addresses there"
    ),
    115: Meaning(  # UNSUPPORTED_ENDPOINT_TYPE
        "bootstrap_servers names something that is not a broker", "Name the brokers' addresses there"
    ),
}

RESTART = "Restart the query"
_GRANT = "Grant it to the sink's user and restart the query"
_FENCED = Meaning("fenced: a newer producer of this name has taken over, in another query or a restarted one", RESTART)
_CREATE = Meaning("Kafka has no such topic or partition", "If it is not there, create it; restart the query")
_REPLICAS = Meaning(
    "fewer replicas of a partition are in sync than its min.insync.replicas",
    "Bring its brokers back, or lower that setting, and restart the query",
)
# After these errors a restart may help, and the message says more than that. Missing permissions and topics are here,
# because a broker may learn of a new permission or topic a moment late.
PASSING: dict[int, Meaning] = {
    **dict.fromkeys(FENCED, _FENCED),
    -188: _CREATE,  # _UNKNOWN_TOPIC
    3: _CREATE,  # UNKNOWN_TOPIC_OR_PART
    -183: _REPLICAS,  # _ISR_INSUFF
    19: _REPLICAS,  # NOT_ENOUGH_REPLICAS
    20: _REPLICAS,  # NOT_ENOUGH_REPLICAS_AFTER_APPEND
    29: Meaning("not allowed to READ and WRITE the sink's topics", _GRANT),  # TOPIC_AUTHORIZATION_FAILED
    30: Meaning("not allowed to READ group {name!r}", _GRANT),  # GROUP_AUTHORIZATION_FAILED
    31: Meaning("not allowed to IDEMPOTENT_WRITE on the cluster", _GRANT),  # CLUSTER_AUTHORIZATION_FAILED
    49: Meaning(  # INVALID_PRODUCER_ID_MAPPING
        "Kafka does not know this producer any more: its transactional id has expired, which takes "
        "transactional.id.expiration.ms (a week, unless set), or a newer producer of this name has taken over",
        RESTART,
    ),
    53: Meaning("not allowed to WRITE to transactional id {name!r}", _GRANT),  # TRANSACTIONAL_ID_AUTHORIZATION_FAILED
}


def is_permanent(error: KafkaError) -> bool:
    """Tell whether the error comes again with every restart, until somebody changes something."""
    return error.code() in PERMANENT


def is_login_refused(error: Exception) -> bool:
    """Tell whether Kafka refused the password or the token."""
    return _code(error) in NOT_LET_IN


def is_topic_missing(error: Exception) -> bool:
    """Tell whether Kafka, or its client, knows of no such topic or partition."""
    return _code(error) in NO_SUCH_TOPIC


def failure(
    error: Exception, name: str, batch_id: int, elapsed: float, timeout: float, by_token: bool = False
) -> SinkRefused | BatchFailed:
    """Return the exception for an error of Kafka: its message names the cause and the setting. Times in seconds.

    `by_token`: the sink logs in with tokens, and asks for another after a restart.
    """
    code = _code(error)
    if code in PERMANENT and not (by_token and code in NOT_LET_IN):
        why, to_do = _shown(PERMANENT[code], error, name, timeout)
        return SinkRefused(
            f"sink {name!r} refuses batch {batch_id}: {why}. No restart helps before that is changed. {to_do}, and "
            "restart the query: the batch is then published once"
        )
    why, to_do = _passing(error, name, elapsed, timeout)
    return BatchFailed(f"sink {name!r}, batch {batch_id}: {why}. {to_do}: the batch is repeated and published once")


def explain(error: KafkaError, name: str) -> str:
    """Return what an error means, and what to do where a restart does not help."""
    if error.code() in PERMANENT:
        return ". ".join(_shown(PERMANENT[error.code()], KafkaException(error), name, 0))
    return _passing(KafkaException(error), name, 0, float("inf"))[0]


def undecided(error: OutcomeUnknown, siblings: str) -> str:
    """Return the message: which rows Kafka left open, and how to see whether they were committed.

    `siblings` describes other rows of the same transaction.
    """
    return (
        f"Kafka reported a transaction as complete, left rows of it open in {error}, and no longer knows whether it "
        f"was committed. Read these rows with read_uncommitted. If {siblings} are visible with read_committed, the "
        "transaction was committed: copy the open rows by hand. Then, or if it was aborted, abort it there with "
        "kafka-transactions.sh, and restart the query"
    )


def _code(error: Exception) -> int | None:
    return error.args[0].code() if isinstance(error, KafkaException) else None


def _shown(meaning: Meaning, error: Exception, name: str, timeout: float) -> tuple[str, str]:
    why, said = meaning.why.format(name=name, timeout_ms=timeout * 1000), error.args[0].str()
    if (exactly := said.find(NOT_ALLOWED)) >= 0:
        return said[exactly:], meaning.to_do
    return f"{why} (Kafka said: {said})", meaning.to_do


def _passing(error: Exception, name: str, elapsed: float, timeout: float) -> tuple[str, str]:
    """Return what happened, and what to do for the batch to be repeated."""
    code = _code(error)
    if code in FENCED and elapsed >= timeout:
        return (
            f"after {elapsed:.1f} s the transaction is no longer open: the broker aborted it, since "
            f"transaction.timeout.ms is {timeout * 1000:.0f}, or a newer producer of this name has taken over. Nothing "
            "is lost",
            "If no other query has the name, raise transaction_timeout_ms above the longest batch; restart the query",
        )
    if code in NOT_LET_IN:
        return (
            f"Kafka refuses the token that the sink logs in with ({error.args[0].str()})",
            "Restart the query, which asks for another token; if Kafka refuses that too, check the identity provider",
        )
    if code in PASSING:
        return _shown(PASSING[code], error, name, timeout)
    if isinstance(error, KafkaException):
        return f"Kafka said: {error.args[0].str()} ({error.args[0].name()})", RESTART
    if isinstance(error, IncompleteWrite):
        return f"{error}: the transaction was aborted", RESTART
    return f"Kafka said: {error}", RESTART


ONE_ANSWER = 5  # seconds
GONE = 5  # seconds until a topic that is missing counts as gone: a broker may learn of a new topic late
ASK = 1  # second, from one request about the topics to the next
NO_CAUSE = {KafkaError._STATE, KafkaError._NOT_CONFIGURED}  # the transaction has not failed, or there is none


@contextlib.contextmanager
def root_error(producer: Producer, topic: str | None) -> Iterator[None]:
    """Replace a KafkaException in the block by the one that made the producer's open transaction fail.

    If the producer is fenced or may not write to the topic, librdkafka only says of its rows that they were "purged",
    or that there was a "fatal error".
    """
    try:
        yield
    except KafkaException as error:
        cause = _failure_of_transaction(producer) or error.args[0]
        if topic:
            cause = why_unknown(producer, topic, cause)
        which = f"topic {topic!r}" if topic else "a topic named in the column 'topic'"
        raise KafkaException(with_operation(cause, f"WRITE to {which}", topic)) from error


def why_unknown(producer: Producer, topic: str, error: KafkaError) -> KafkaError:
    """Return Kafka's own error if the client does not know the topic: it is missing, or its name is not valid."""
    if error.code() in NO_SUCH_TOPIC:
        with contextlib.suppress(KafkaException):
            return producer.list_topics(topic, timeout=ONE_ANSWER).topics[topic].error or error
    return error


class Refusal:
    """Records why a client cannot connect, which a timeout does not say: `note` is a client's `error_cb`.

    It must not refer to other objects, such as a sink, because a client and its callback refer to each other: whatever
    the callback refers to would stay, with the client's threads, until Python's garbage collector finds that cycle.
    """

    def __init__(self) -> None:
        self._heard: KafkaError | None = None
        self._all_down = False

    @property
    def error(self) -> KafkaError | None:
        """Why the client cannot connect, or None. One wrong address does not count while another may work."""
        return self._heard if self._all_down else None

    def note(self, error: KafkaError) -> None:
        if error.code() in CANNOT_CONNECT:
            self._heard = error
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._all_down = True

    def ask_again(self) -> None:
        """Forget the last error: librdkafka tries again, and reports again."""
        self._heard = None

    def let_in(self) -> None:
        """Note that a broker has answered."""
        self._heard, self._all_down = None, False


class AbsenceTimer:
    """Tells that something is gone: it was missing for GONE seconds, and not seen in between."""

    def __init__(self) -> None:
        self._since: float | None = None

    def seen(self) -> None:
        self._since = None

    def missed(self) -> bool:
        """Note that it is missing now, and tell whether it is gone."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
        return now - self._since >= GONE


class Absence:
    """Notices that a topic is gone while a client waits for it: librdkafka would wait until the time is up."""

    def __init__(self, client: Producer | Consumer, topics: Collection[str]):
        self._client, self._timers = client, {topic: AbsenceTimer() for topic in topics}
        self._asked = time.monotonic()

    def look(self) -> None:
        """Raise KafkaException, which names the topic, if Kafka has not known a topic for GONE seconds."""
        if time.monotonic() - self._asked < ASK:
            return
        for topic, timer in self._timers.items():
            try:
                error = self._client.list_topics(topic, timeout=ASK).topics[topic].error
            except KafkaException:  # no answer
                continue
            if error is None or error.code() not in NO_SUCH_TOPIC:
                timer.seen()
            elif timer.missed():
                said = f"topic {topic!r} no longer exists: it was deleted, or deleted and created again"
                raise KafkaException(KafkaError(error.code(), said))
        self._asked = time.monotonic()


def with_operation(error: KafkaError, operation: str, topic: str | None = None) -> KafkaError:
    """Return the error with the topic in its text; if a permission is missing, with the operation that needs it."""
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return KafkaError(error.code(), f"{NOT_ALLOWED}{operation}")
    if topic is None or any(form in error.str() for form in (f"{topic!r}", f" {topic} [")):
        return error
    return KafkaError(error.code(), f"topic {topic!r}: {error.str()}")


def _failure_of_transaction(producer: Producer) -> KafkaError | None:
    try:
        producer.begin_transaction()  # always refused, since one is open; if that one has failed, the refusal says why
    except KafkaException as answer:
        return None if answer.args[0].code() in NO_CAUSE else answer.args[0]
    return None
