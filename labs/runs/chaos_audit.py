"""Judge a chaos run: first wait until everything is decided, then read, then compare.

A sentinel is written to each partition, the last record of all, and waited for: only when no transaction is open, or
one is known to hang, is anything read that is judged. What lies committed behind an open transaction is visible a
moment later. The audit compares what was sent with what two readers saw, one that watched all along and one that
came at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from labs.evidence.auditor.audit import Audit, Reading, SourceHistory, audit
from labs.evidence.auditor.observed import Key
from labs.evidence.checkpoint.planned_results import read_source_records
from labs.evidence.readers.decided import write_sentinels
from labs.evidence.readers.results import read_results, readable_sentinels
from labs.evidence.readers.watcher import Watcher
from labs.pipeline.log.live_traffic import LiveTraffic
from labs.pipeline.records import CLOSING_IP, SINK_TOPIC, SOURCE_TOPIC, window_start

LOOK_FOR_TIMEOUTS = 20.0  # seconds: brokers look every 10 for transactions that have timed out


def judge(
    servers: str,
    watcher: Watcher,
    traffic: LiveTraffic,
    expected: Mapping[Key, int],
    patience: float,
    error: Exception | None = None,
    topic: str = SINK_TOPIC,
    source_topic: str = SOURCE_TOPIC,
) -> tuple[Audit, Reading, Reading]:
    """Stop the watcher and audit the run; a transaction hangs if it is open after `patience` seconds.

    Also returns what was watched, and what a reader sees who comes now. `error` is why the run did not come to its end.
    """
    sentinels, watched, came_later = read_all(servers, watcher, patience, topic)
    stored = _stored(servers, source_topic, traffic.window_ms)
    verdict = audit(
        expected,
        watched,
        second_reader=came_later,
        sentinels=sentinels,
        source=SourceHistory(traffic.acknowledged, stored, traffic.indeterminate),
        indeterminate=traffic.indeterminate.total(),
        reader_error=f"the run did not come to its end: {error}" if error else None,
    )
    return verdict, watched, came_later


def read_all(
    servers: str, watcher: Watcher, patience: float, topic: str = SINK_TOPIC
) -> tuple[dict[int, bool], Reading, Reading]:
    """Return whether each partition's sentinel can be read, what was watched, and what a reader sees who comes now.

    In this order, and each only when all transactions are decided, or one has hung for `patience` seconds.
    """
    write_sentinels(servers, topic)
    watched = watcher.stop(patience=patience)
    readable = readable_sentinels(servers, topic)
    sentinels = {partition: partition in readable for partition in watched.decided}
    return sentinels, watched, read_results(servers, topic, patience=0)


def _stored(servers: str, topic: str, window_ms: int) -> Counter[tuple[int, str]]:
    """Count the records of the source topic as the traffic does.

    What is malformed has neither time nor IP: no traffic of ours sent it.
    """
    return Counter(
        (window_start(time_ms, window_ms), ip)
        for _, _, time_ms, ip in read_source_records(servers, topic)
        if time_ms is not None and ip is not None and ip != CLOSING_IP
    )
