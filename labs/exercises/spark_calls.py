"""How the student's code is called where Spark is needed: one session, and one query per round, on fresh topics.

tools has servers and rounds; a round has name, source, target, checkpoint, records_per_batch, expected (how many
results), faults. The first round is a smoke test: if its results are not as many as expected, nothing else is run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from labs.equipment.spark import spark_session
from labs.evidence.reader import read_results
from labs.exercises.batch_points import BatchPoints
from labs.exercises.clients import PATIENCE
from labs.exercises.crash_points import CrashPoints, Watched
from labs.exercises.student_module import Unusable, require_parameters
from labs.faults.fault import InjectedCrash
from labs.pipeline import ip_count
from labs.pipeline.exactly_once import ExactlyOnceKafkaSink
from labs.pipeline.marker import Marker, MarkerStore
from labs.pipeline.transactional_producer import Fresh, producer_settings

Attempt = Callable[[SparkSession, dict[str, Any], BatchPoints], None]
PRODUCER = ("begin_transaction", "produce", "flush", "commit_transaction", "abort_transaction")


class KafkaSide:
    """What `publish` needs of Kafka: a fresh producer, and the marker that says which batch came last."""

    def __init__(self, servers: str, topic: str, points: BatchPoints):
        self.topic, self._points = topic, points
        self._settings = producer_settings(f"sink-of-{topic}", servers, {"linger_ms": 0})
        self._store = MarkerStore(f"sink-of-{topic}", topic, servers, {})

    def new_producer(self) -> Producer:
        """Return a transactional producer with an epoch of its own: all older ones of the sink are fenced."""
        make = lambda: Fresh(self._settings).take(PATIENCE)  # noqa: E731
        producer = self._points.call("kafka.new_producer", make, "kafka.new_producer()", lambda _: "a new epoch")
        return Watched("producer", producer, self._points, PRODUCER)

    def last_batch(self) -> int:
        """Return the id of the batch that was marked last, or -1."""
        read = lambda: -1 if (marker := self._store.read()) is None else marker.batch_id  # noqa: E731
        return self._points.call("kafka.last_batch", read, "kafka.last_batch()")

    def mark(self, batch_id: int, producer: Watched | None = None) -> None:
        """Mark the batch as done: within the producer's open transaction, or, without a producer, at once."""
        marker = Marker(int(batch_id), "exercise")
        if producer is None:
            mark, told = lambda: self._store.overwrite(marker), f"kafka.mark({batch_id})"
        else:
            mark = lambda: self._store.send(marker, producer._real, PATIENCE)  # noqa: E731
            told = f"kafka.mark({batch_id}, producer)"
        self._points.call("kafka.mark", mark, told)


def with_sink(function: Callable, tools: dict[str, Any], points: CrashPoints) -> None:
    """Use function(rows, batch_id, kafka) as the foreachBatch function of the IP count."""
    require_parameters(function, (None, 0, None), "rows, batch_id, kafka")

    def attempt(spark: SparkSession, round_: dict[str, Any], points: BatchPoints) -> None:
        kafka, errors = KafkaSide(tools["servers"], round_["target"], points), []

        def publish(rows: DataFrame, batch_id: int) -> None:
            points.batch_id = batch_id
            try:
                points.call("publish", lambda: function(rows, batch_id, kafka) and None, f"publish(rows, {batch_id})")
            except Exception as error:
                errors.append(error)
                raise

        records = _source(spark, tools, round_)
        _finish(ip_count.start(ip_count.ip_count(records), publish, round_["checkpoint"]), errors)

    _rounds(attempt, tools, points)


def with_stream(function: Callable, tools: dict[str, Any], points: CrashPoints) -> None:
    """Publish what function(requests) returns: (counts, output mode)."""
    require_parameters(function, (None,), "requests")

    def attempt(spark: SparkSession, round_: dict[str, Any], points: BatchPoints) -> None:
        requests = ip_count.parse(_source(spark, tools, round_)).select("event_time", "ip")
        answer = points.call("query", lambda: function(requests), "query(requests)", lambda _: "a query")
        if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], DataFrame)):
            raise Unusable("signature", f"it should return (counts, output_mode), and returned {answer!r:.80}")
        counts, mode = answer
        if missing := {"window", "ip", "count"} - set(counts.columns):
            raise Unusable("signature", f"counts has no column {', '.join(sorted(missing))}: it has {counts.columns}")
        sink = ExactlyOnceKafkaSink(f"of-{round_['target']}", round_["target"], bootstrap_servers=tools["servers"])
        writer = ip_count.as_records(counts).writeStream.outputMode(mode).foreachBatch(sink)
        query = writer.option("checkpointLocation", round_["checkpoint"]).trigger(availableNow=True).start()
        _finish(query, [])
        state = sum(operator.numRowsTotal for operator in query.lastProgress.stateOperators)
        points.journal.write("state", f"the state holds {state} rows", rows=state)

    _rounds(attempt, tools, points)


def _rounds(attempt: Attempt, tools: dict[str, Any], points: CrashPoints) -> None:
    points.journal.write("phase", "start Spark")
    spark = spark_session("exercise")
    points = BatchPoints(points.journal)
    for number, round_ in enumerate(tools["rounds"]):
        points.journal.write("phase", "call", round=round_["name"])
        points.armed = list(round_["faults"])
        while True:
            left = len(points.armed)
            try:
                attempt(spark, round_, points)
                break
            except InjectedCrash:
                if len(points.armed) == left:
                    raise
        if number == 0 and len(tools["rounds"]) > 1:
            there = len(read_results(tools["servers"], round_["target"]))
            if there != round_["expected"]:
                return


def _source(spark: SparkSession, tools: dict[str, Any], round_: dict[str, Any]) -> DataFrame:
    return ip_count.read_source(
        spark, tools["servers"], round_["source"], records_per_batch=round_["records_per_batch"]
    )


def _finish(query, errors: list[Exception]) -> None:
    """Wait for the end of the query. Raises the error of the student's function rather than what Spark made of it."""
    try:
        query.awaitTermination()
    except StreamingQueryException:
        if errors:
            raise errors[-1] from None
        raise
    finally:
        query.stop()
