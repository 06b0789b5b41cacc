"""The errors of the exactly-once sink, and what each error code of Kafka means for it.

A *permanent* error comes again with every restart until somebody changes something: the sink raises SinkRefused. A
*passing* error can be gone after a restart: it raises BatchFailed. The tables below have each code of Kafka's protocol
and of librdkafka by its number, since older clients lack the newer names; a test compares them with both libraries.

An error of a call does not always say why its transaction failed; `root_error` asks librdkafka for the cause.
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
    """What an error means, and what to do about it; `{name}` is the sink's and `{said}` what Kafka said."""

    why: str
    to_do: str


_SAID = "Kafka said: {said}"
_CHANGE_OPTIONS = Meaning("Kafka or its client rejects an option of the sink (" + _SAID + ")", "Change that option")
_TOO_OLD = Meaning(
    "this Kafka lacks what the sink needs, or has it switched off (" + _SAID + ")",
    "Use Kafka 2.5 or later, and do not downgrade the brokers' features",
)
_TOPIC_SETTINGS = Meaning("Kafka refuses the settings of a topic (" + _SAID + ")", "Create the topic yourself")
_LOGIN = Meaning(
    "Kafka does not let the sink in (" + _SAID + ")",
    "Change security_protocol and the sasl_ options to what the broker expects: mechanism, user and password",
)
_BAD_RECORD = Meaning(
    "Kafka refuses a row ("
    + _SAID
    + "); a topic with cleanup.policy=compact takes no row whose column 'key' is null or absent",
    "Give each row a key, or use a topic that is not compacted",
)
_TOO_LARGE = Meaning(
    "a row, or a batch of rows, is larger than the topic's max.message.bytes (" + _SAID + ")",
    "Raise max.message.bytes, or set the sink's message_max_bytes to the same",
)

# Each restart meets these again, until somebody has done what is said here.
PERMANENT: dict[int, Meaning] = {
    -190: Meaning(  # _UNKNOWN_PARTITION
        "the column 'partition' of a row names a partition that the topic does not have (" + _SAID + ")",
        "Give the topic more partitions, or mend the column",
    ),
    -186: _CHANGE_OPTIONS,  # _INVALID_ARG
    -181: Meaning(  # _SSL
        "TLS with Kafka fails (" + _SAID + ")",
        "Change security_protocol and the ssl_ options to what the broker expects: ssl_ca_location must name the "
        "certificate that signed the broker's, and the broker's certificate must be valid and have its address",
    ),
    -171: _TOO_OLD,  # _UNKNOWN_PROTOCOL
    -170: _CHANGE_OPTIONS,  # _NOT_IMPLEMENTED
    -169: _LOGIN,  # _AUTHENTICATION
    -165: _TOO_OLD,  # _UNSUPPORTED_FEATURE
    -154: _CHANGE_OPTIONS,  # _INVALID_TYPE
    -145: _CHANGE_OPTIONS,  # _NOT_CONFIGURED
    -138: _BAD_RECORD,  # _INVALID_DIFFERENT_RECORD
    10: _TOO_LARGE,  # MSG_SIZE_TOO_LARGE
    17: Meaning(  # TOPIC_EXCEPTION
        "Kafka does not allow a topic of this name, or lets no client write to it (" + _SAID + ")",
        "Give the sink another topic, or mend the column 'topic'",
    ),
    18: Meaning(  # RECORD_LIST_TOO_LARGE
        "a batch of rows is larger than the topic's segment.bytes (" + _SAID + ")",
        "Raise segment.bytes, or set the sink's batch_size below it",
    ),
    21: _CHANGE_OPTIONS,  # INVALID_REQUIRED_ACKS
    24: Meaning(  # INVALID_GROUP_ID
        "Kafka does not accept the sink's name {name!r} as a group's (" + _SAID + ")", "Give the sink another name"
    ),
    32: Meaning(  # INVALID_TIMESTAMP
        "Kafka refuses the time of a record (" + _SAID + "): the clock of this machine, or of an executor's, is wrong; "
        "or the topic's message.timestamp.before.max.ms or message.timestamp.after.max.ms (1 hour, unless set) is too "
        "narrow",
        "Set the clock, or raise these settings",
    ),
    33: _LOGIN,  # UNSUPPORTED_SASL_MECHANISM
    34: _LOGIN,  # ILLEGAL_SASL_STATE
    35: _TOO_OLD,  # UNSUPPORTED_VERSION
    37: _TOPIC_SETTINGS,  # INVALID_PARTITIONS
    38: _TOPIC_SETTINGS,  # INVALID_REPLICATION_FACTOR
    39: _TOPIC_SETTINGS,  # INVALID_REPLICA_ASSIGNMENT
    40: _TOPIC_SETTINGS,  # INVALID_CONFIG
    42: _CHANGE_OPTIONS,  # INVALID_REQUEST
    43: Meaning(  # UNSUPPORTED_FOR_MESSAGE_FORMAT
        "the topic has records of a format without transactions (" + _SAID + ")", "Give the sink a new topic"
    ),
    44: Meaning("a policy of the brokers forbids it (" + _SAID + ")", "Follow that policy"),  # POLICY_VIOLATION
    50: Meaning(  # INVALID_TRANSACTION_TIMEOUT
        "transaction_timeout_ms is {timeout_ms:.0f}, which is more than the broker's transaction.max.timeout.ms "
        "(900000, unless set) allows",
        "Lower transaction_timeout_ms or raise transaction.max.timeout.ms",
    ),
    54: _LOGIN,  # SECURITY_DISABLED
    58: _LOGIN,  # SASL_AUTHENTICATION_FAILED
    76: Meaning(  # UNSUPPORTED_COMPRESSION_TYPE
        "the broker does not know the compression (" + _SAID + ")", "Set the sink's compression_type to another"
    ),
    87: _BAD_RECORD,  # INVALID_RECORD
    114: Meaning(  # MISMATCHED_ENDPOINT_TYPE
        "bootstrap_servers names controllers (" + _SAID + ")", "Name the brokers' addresses there"
    ),
    115: Meaning(  # UNSUPPORTED_ENDPOINT_TYPE
        "bootstrap_servers names something that is not a broker (" + _SAID + ")", "Name the brokers' addresses there"
    ),
}

_GRANT = "Grant it to the sink's user and restart the query"
_CREATE = Meaning("Kafka has no such topic or partition ({said})", "If it is not there, create it; restart the query")
_RESTART = Meaning(_SAID + " ({code})", "Restart the query")
_REPLICAS = Meaning(
    "fewer replicas of a partition are in sync than its min.insync.replicas (" + _SAID + ")",
    "Bring its brokers back, or lower that setting, and restart the query",
)
# A restart may help: Kafka is busy, a leader or coordinator has moved, or another producer has taken over. Missing
# permissions and topics are here too, because a broker may see new ones a moment late.
PASSING: dict[int, Meaning] = {
    **dict.fromkeys(
        (
            -199,  # _BAD_MSG
            -198,  # _BAD_COMPRESSION
            -197,  # _DESTROY
            -196,  # _FAIL, also for errors without a code
            -195,  # _TRANSPORT
            -194,  # _CRIT_SYS_RESOURCE
            -193,  # _RESOLVE
            -192,  # _MSG_TIMED_OUT
            -189,  # _FS
            -187,  # _ALL_BROKERS_DOWN
            -185,  # _TIMED_OUT
            -184,  # _QUEUE_FULL
            -182,  # _NODE_UPDATE
            -180,  # _WAIT_COORD
            -178,  # _IN_PROGRESS
            -177,  # _PREV_IN_PROGRESS
            -173,  # _CONFLICT
            -172,  # _STATE
            -167,  # _OUTDATED
            -166,  # _TIMED_OUT_QUEUE
            -164,  # _WAIT_CACHE
            -163,  # _INTR
            -158,  # _PARTIAL
            -155,  # _UNDERFLOW
            -153,  # _RETRY
            -152,  # _PURGE_QUEUE
            -151,  # _PURGE_INFLIGHT
            -150,  # _FATAL
            -149,  # _INCONSISTENT
            -148,  # _GAPLESS_GUARANTEE
            -146,  # _UNKNOWN_BROKER
            -140,  # _AUTO_OFFSET_RESET
            -139,  # _LOG_TRUNCATION
            -137,  # _DESTROY_BROKER
            -1,  # UNKNOWN
            1,  # OFFSET_OUT_OF_RANGE
            2,  # INVALID_MSG: it was damaged on its way
            5,  # LEADER_NOT_AVAILABLE
            6,  # NOT_LEADER_FOR_PARTITION
            7,  # REQUEST_TIMED_OUT
            8,  # BROKER_NOT_AVAILABLE
            9,  # REPLICA_NOT_AVAILABLE
            11,  # STALE_CTRL_EPOCH
            13,  # NETWORK_EXCEPTION
            14,  # COORDINATOR_LOAD_IN_PROGRESS
            15,  # COORDINATOR_NOT_AVAILABLE
            16,  # NOT_COORDINATOR
            22,  # ILLEGAL_GENERATION
            25,  # UNKNOWN_MEMBER_ID
            27,  # REBALANCE_IN_PROGRESS
            36,  # TOPIC_ALREADY_EXISTS
            41,  # NOT_CONTROLLER
            45,  # OUT_OF_ORDER_SEQUENCE_NUMBER
            46,  # DUPLICATE_SEQUENCE_NUMBER
            51,  # CONCURRENT_TRANSACTIONS
            52,  # TRANSACTION_COORDINATOR_FENCED
            55,  # OPERATION_NOT_ATTEMPTED
            56,  # KAFKA_STORAGE_ERROR
            57,  # LOG_DIR_NOT_FOUND
            59,  # UNKNOWN_PRODUCER_ID
            60,  # REASSIGNMENT_IN_PROGRESS
            69,  # GROUP_ID_NOT_FOUND
            70,  # FETCH_SESSION_ID_NOT_FOUND
            71,  # INVALID_FETCH_SESSION_EPOCH
            72,  # LISTENER_NOT_FOUND
            74,  # FENCED_LEADER_EPOCH
            75,  # UNKNOWN_LEADER_EPOCH
            77,  # STALE_BROKER_EPOCH
            78,  # OFFSET_NOT_AVAILABLE
            80,  # PREFERRED_LEADER_NOT_AVAILABLE
            83,  # ELIGIBLE_LEADERS_NOT_AVAILABLE
            88,  # UNSTABLE_OFFSET_COMMIT
            89,  # THROTTLING_QUOTA_EXCEEDED
            91,  # RESOURCE_NOT_FOUND
            97,  # PRINCIPAL_DESERIALIZATION_FAILURE
            100,  # UNKNOWN_TOPIC_ID
            103,  # INCONSISTENT_TOPIC_ID
            105,  # TRANSACTIONAL_ID_NOT_FOUND
            106,  # FETCH_SESSION_TOPIC_ID_ERROR
            108,  # NEW_LEADER_ELECTED
            109,  # OFFSET_MOVED_TO_TIERED_STORAGE
            113,  # STALE_MEMBER_EPOCH
            120,  # TRANSACTION_ABORTABLE
            129,  # REBOOTSTRAP_REQUIRED
            *FENCED,
        ),
        _RESTART,
    ),
    -188: _CREATE,  # _UNKNOWN_TOPIC
    3: _CREATE,  # UNKNOWN_TOPIC_OR_PART
    -183: _REPLICAS,  # _ISR_INSUFF
    19: _REPLICAS,  # NOT_ENOUGH_REPLICAS
    20: _REPLICAS,  # NOT_ENOUGH_REPLICAS_AFTER_APPEND
    29: Meaning("READ and WRITE the sink's topics", _GRANT),  # TOPIC_AUTHORIZATION_FAILED
    30: Meaning("READ group {name!r}", _GRANT),  # GROUP_AUTHORIZATION_FAILED
    31: Meaning("IDEMPOTENT_WRITE on the cluster", _GRANT),  # CLUSTER_AUTHORIZATION_FAILED
    53: Meaning("WRITE to transactional id {name!r}", _GRANT),  # TRANSACTIONAL_ID_AUTHORIZATION_FAILED
}

# Answers to requests that a sink never sends, such as those of consumers in a group. If one comes anyway, it is treated
# like an unknown code: a restart may help.
OF_OTHERS = {
    *(-191, -179, -176, -175, -174, -168, -162, -161, -160, -159, -157, -156, -147, -143, -142, -141),
    *(0, 4, 12, 23, 26, 28, *range(61, 69), 73, 79, 81, 82, 84, 85, 86, *range(92, 97), 98, 99),
    *(101, 102, 104, 107, 110, 111, 112, *range(116, 120), *range(121, 129), *range(130, 134)),
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
    """Return the message: what Kafka left open, and how its `siblings` show whether it was committed."""
    return (
        f"Kafka reported a transaction as complete, left rows of it open in {error}, and no longer knows whether it "
        f"was committed. Read these rows with read_uncommitted. If {siblings} are visible with read_committed, the "
        "transaction was committed: copy the open rows by hand. Then, or if it was aborted, abort it there with "
        "kafka-transactions.sh, and restart the query"
    )


def _code(error: Exception) -> int | None:
    return error.args[0].code() if isinstance(error, KafkaException) else None


def _said(error: Exception) -> str:
    return str(error.args[0].str() if isinstance(error, KafkaException) else error)


def _shown(meaning: Meaning, error: Exception, name: str, timeout: float) -> tuple[str, str]:
    facts = {"name": name, "said": _said(error), "code": error.args[0].name(), "timeout_ms": timeout * 1000}
    return meaning.why.format_map(facts), meaning.to_do


def _passing(error: Exception, name: str, elapsed: float, timeout: float) -> tuple[str, str]:
    """Return what happened, and what to do for the batch to be repeated."""
    if isinstance(error, IncompleteWrite):
        return f"{error}: the transaction was aborted", "Restart the query"
    code, said = _code(error), _said(error)
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
    if code in NOT_LET_IN:
        return (
            f"Kafka refuses the token that the sink logs in with ({said})",
            "Restart the query, which asks for another token; if Kafka refuses that too, check the identity provider",
        )
    if code is None:
        return f"Kafka said: {error}", "Restart the query"
    if code not in PASSING:
        return f"Kafka said: {said} (error {code}, which this sink does not know)", "Restart the query"
    why, to_do = _shown(PASSING[code], error, name, timeout)
    if to_do == _GRANT:
        # `with_operation` may have said more exactly what is not allowed.
        why = said if said.startswith("not allowed") else f"not allowed to {why}"
        why = f"{why} (Kafka said: {said})"
    return why, to_do


ONE_ANSWER = 5  # seconds
GONE = 5  # seconds for which a broker may not know a topic: a broker may hear late of a new one
ASK = 1  # second, from one look at the topics to the next
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
    """Return Kafka's own error for a topic that the client does not know: it is missing, or its name is not valid."""
    if error.code() in NO_SUCH_TOPIC:
        with contextlib.suppress(KafkaException):
            return producer.list_topics(topic, timeout=ONE_ANSWER).topics[topic].error or error
    return error


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
        """Raise KafkaException, which names the topic, if Kafka has not known one of them for GONE seconds."""
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
    """Return the error with the topic in its text, or with the operation if that is not allowed."""
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return KafkaError(error.code(), f"not allowed to {operation}")
    if topic is None or any(form in error.str() for form in (f"{topic!r}", f" {topic} [")):
        return error
    return KafkaError(error.code(), f"topic {topic!r}: {error.str()}")


def _failure_of_transaction(producer: Producer) -> KafkaError | None:
    try:
        producer.begin_transaction()  # always refused, since one is open; if that one has failed, the refusal says why
    except KafkaException as answer:
        return None if answer.args[0].code() in NO_CAUSE else answer.args[0]
    return None
