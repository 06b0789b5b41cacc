"""Calls the student's code in the exercises with Spark: one query, on fresh topics, restarted after each fault.

`tools` has servers, name (of the round), source, target, checkpoint, records_per_batch, faults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.listener import StreamingQueryProgress

from exactly_once_kafka.deadline import Deadline
from exactly_once_kafka.marker_store import MarkerStore
from exactly_once_kafka.marker_topic import topic_for
from exactly_once_kafka.producer import PendingProducer
from exactly_once_kafka.producer_options import producer_settings
from exactly_once_kafka.protocol import ADOPTED, Marker
from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.equipment.spark import spark_session
from labs.exercises.checker.clients import PATIENCE
from labs.exercises.checker.crash_points import BatchPoints, CrashPoints, Watched
from labs.exercises.checker.student_module import Unusable, require_parameters
from labs.pipeline.query import ip_count

A_MOMENT = 2.0  # seconds for Kafka to complete what it is about to decide
Attempt = Callable[[SparkSession, BatchPoints], None]
PRODUCER = ("begin_transaction", "produce", "flush", "commit_transaction", "abort_transaction")


class KafkaSide:
    """What `publish` gets of Kafka: a fresh producer, and the marker that says which batch came last."""

    def __init__(self, servers: str, topic: str, points: BatchPoints):
        self.topic, self._points = topic, points
        name = f"sink-of-{topic}"
        self._settings = producer_settings(name, servers, {"linger_ms": 0})
        # A mark outside of the transaction must not fence the sink's producer: so the student sees what it leads to.
        self._marking = producer_settings(f"{name}-marking", servers, {"linger_ms": 0})
        self._store = MarkerStore(name, topic_for(name, None), servers, {})
        self._store.topic.create(Deadline(PATIENCE))

    def new_producer(self) -> Watched:
        """Return a transactional producer with an epoch of its own: all older ones of the sink are fenced."""
        make = lambda: PendingProducer(self._settings).take(Deadline(PATIENCE))  # noqa: E731
        producer = self._points.call("kafka.new_producer", make, "kafka.new_producer()", lambda _: "a new epoch")
        return Watched("producer", producer, self._points, PRODUCER)

    def last_batch(self) -> int:
        """Return the id of the batch that was marked last, or -1.

        It waits for a commit in progress, but not for a transaction that a dead run left open: perhaps nobody ends it.
        """
        return self._points.call("kafka.last_batch", self._last_batch, "kafka.last_batch()")

    def _last_batch(self) -> int:
        try:
            marker = self._store.read(Deadline(A_MOMENT))
        except TimeoutError:
            marker = self._store.read(Deadline(PATIENCE), undecided=True)
        return -1 if marker is None else marker.batch_id

    def mark(self, batch_id: int, producer: Watched | None = None) -> None:
        """Mark the batch as done: within the producer's open transaction, or, without a producer, at once."""
        marker, deadline = Marker(int(batch_id), "exercise", ADOPTED), Deadline(PATIENCE)
        if producer is None:
            mark, detail = lambda: self._mark_at_once(marker, deadline), f"kafka.mark({batch_id})"
        else:
            mark = lambda: self._store.send(marker, producer._real, deadline)  # noqa: E731
            detail = f"kafka.mark({batch_id}, producer)"
        self._points.call("kafka.mark", mark, detail)

    def _mark_at_once(self, marker: Marker, deadline: Deadline) -> None:
        self._store.overwrite(marker, PendingProducer(self._marking).take(deadline), deadline)


def with_sink(function: Callable, tools: dict[str, Any], points: CrashPoints) -> None:
    """Use function(rows, batch_id, kafka) as the foreachBatch function of the IP count."""
    require_parameters(function, (None, 0, None), "rows, batch_id, kafka")

    def attempt(spark: SparkSession, points: BatchPoints) -> None:
        kafka, errors = KafkaSide(tools["servers"], tools["target"], points), []

        def publish(rows: DataFrame, batch_id: int) -> None:
            points.batch_id = batch_id
            try:
                points.call("publish", lambda: function(rows, batch_id, kafka) and None, f"publish(rows, {batch_id})")
            except Exception as error:
                errors.append(error)
                raise

        records = _source(spark, tools)
        _await_end(ip_count.start_query(ip_count.count_ips(records), publish, tools["checkpoint"]), errors)

    _until_done(attempt, tools, points)


def with_stream(function: Callable, tools: dict[str, Any], points: CrashPoints) -> None:
    """Publish what function(requests) returns: (counts, output mode)."""
    require_parameters(function, (None,), "requests")

    def attempt(spark: SparkSession, points: BatchPoints) -> None:
        requests = ip_count.parse_records(_source(spark, tools)).select("event_time", "ip")
        answer = points.call("query", lambda: function(requests), "query(requests)", lambda _: "a query")
        if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], DataFrame)):
            raise Unusable("signature", f"it should return (counts, output_mode), and returned {answer!r:.80}")
        counts, mode = answer
        if missing := {"window", "ip", "count"} - set(counts.columns):
            raise Unusable("signature", f"counts has no column {', '.join(sorted(missing))}: it has {counts.columns}")
        target, servers = tools["target"], tools["servers"]
        sink = ExactlyOnceKafkaSink(f"of-{target}", target, bootstrap_servers=servers, writers="driver")
        writer = ip_count.as_records(counts).writeStream.outputMode(mode).foreachBatch(sink)
        query = writer.option("checkpointLocation", tools["checkpoint"]).trigger(availableNow=True).start()
        _await_end(query, [])
        note_state(query.lastProgress, points)

    _until_done(attempt, tools, points)


def note_state(progress: StreamingQueryProgress | None, points: CrashPoints) -> None:
    """Note how many rows the state holds. A query without new input ran no batch, and has no progress."""
    if progress is not None:
        state = sum(operator.numRowsTotal for operator in progress.stateOperators)
        points.journal.write("state", f"the state holds {state} rows", rows=state)


def _until_done(attempt: Attempt, tools: dict[str, Any], points: CrashPoints) -> None:
    """Run the round, and run it again after each injected crash."""
    points.journal.write("phase", "start Spark")
    # For a few batches of twelve records, compiling the query takes longer than its compiled code saves.
    spark = spark_session("exercise", spark_sql_codegen_wholeStage="false")
    for query in spark.streams.active:  # of a run before this one
        query.stop()
    points = BatchPoints(points.journal)
    points.journal.write("phase", "call", round=tools["name"])
    points.armed = list(tools["faults"])
    while True:
        left = len(points.armed)
        try:
            return attempt(spark, points)
        except Exception:  # the crash, or what the code made of it: an abort that is refused, an error of its own
            if len(points.armed) == left:  # none struck
                raise


def _source(spark: SparkSession, tools: dict[str, Any]) -> DataFrame:
    return ip_count.read_source(spark, tools["servers"], tools["source"], records_per_batch=tools["records_per_batch"])


def _await_end(query: StreamingQuery, errors: list[Exception]) -> None:
    """Wait for the end of the query. Raises the error of the student's function, not the one that Spark makes of it."""
    try:
        query.awaitTermination()
    except StreamingQueryException:
        if errors:
            raise errors[-1] from None
        raise
    finally:
        query.stop()
