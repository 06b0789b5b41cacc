"""Run the IP count as a job of its own, from a checkpoint if there is one; it reports its batches in lines of JSON.

With --warm it is a hot spare: a job with Python, JVM and session started, which reads nothing and fences nobody until
it is told to. It prints {"event": "warm"} and waits for one line on standard input: a JSON list of the arguments of
`labs run`. Until then it has no address of Kafka, no checkpoint and no name, so that it cannot affect anything. It ends
when standard input ends, and so with the process at the other end.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NoReturn

from labs.equipment.interrupts import interrupts_wait

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

    from exactly_once_kafka.points import Points
    from labs.faults.fault_points import FaultPoints
    from labs.pipeline.query.ip_count import Sink

EXAMPLES = """examples:
  python -m labs run --bootstrap-servers 127.0.0.1:9092 --checkpoint ./checkpoint
  python -m labs run --bootstrap-servers 127.0.0.1:9092 --checkpoint ./checkpoint --sink at-least-once \\
      --fault after_commit@2:kill
  python -m labs run --warm       a hot spare, which waits for its arguments as a JSON list on standard input
"""
WARM = "start Python, JVM and session, and wait for the other arguments as one line on standard input, a JSON list"
COMPILER = "Java's compilers: only the quick one, which starts soonest, or all, for a long run (default: %(default)s)"
# Sink -> its options that differ from the library's defaults.
SINK_OPTIONS: dict[str, dict[str, Any]] = {
    "by-driver": {"writers": "driver"},
    "by-executors": {"driver_rows": 0},
    "no-marker": {"writers": "driver"},
}
# Spark settings. By default PySpark imports IPython at the first call, to add the caller's line to error messages.
FOR_A_JOB = {"spark_python_sql_dataFrameDebugging_enabled": "false"}
STDIN = 0
MISUSED = 2  # the exit code for arguments that are wrong


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--warm", action="store_true", help=WARM)
    parser.add_argument("--compiler", choices=("quick", "all"), default="quick", help=COMPILER)
    parser.set_defaults(misused=parser.error)
    add_options(parser, required=False)


def add_options(parser: argparse.ArgumentParser, required: bool = True) -> None:
    from labs.faults.job import SINK_HELP, SINKS
    from labs.pipeline.records import LARGEST_BATCH, SINK_TOPIC, SOURCE_TOPIC

    limit = (
        "at most this many records in a micro-batch "
        f"(default: {LARGEST_BATCH:,} if the source has one partition, otherwise all that are there)"
    )
    parser.add_argument("--bootstrap-servers", required=required, help="address of Kafka: host:port")
    parser.add_argument("--checkpoint", required=required, help="checkpoint directory (any Hadoop URI)")
    parser.add_argument("--sink", type=sink_option, default=SINKS[0], help=SINK_HELP)
    parser.add_argument("--name", default="ip-count", help="name of the exactly-once sink (default: %(default)s)")
    parser.add_argument("--source-topic", default=SOURCE_TOPIC, help="(default: %(default)s)")
    parser.add_argument("--sink-topic", default=SINK_TOPIC, help="(default: %(default)s)")
    parser.add_argument("--starting", default="earliest", help="where to start without a checkpoint")
    parser.add_argument("--records-per-batch", type=int, help=limit)
    parser.add_argument("--trigger", default="available-now", help='"available-now", or seconds between batches')
    parser.add_argument("--transaction-timeout-ms", type=int, default=60_000)
    parser.add_argument("--fault", action="append", default=[], help="POINT@BATCH, with :kill or :pause")


def sink_option(text: str) -> str:
    from labs.faults.job import known_sink

    try:
        return known_sink(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(arguments: argparse.Namespace) -> int:
    from labs.faults.fault_points import JOB_MARK

    if os.getpgrp() == os.getpid():
        os.environ[JOB_MARK] = str(os.getpid())
        signal.signal(signal.SIGINT, signal.default_int_handler)  # the parent process may have ignored it
    quick_start = arguments.compiler == "quick"
    if arguments.warm:
        return _run_when_told(quick_start)
    if arguments.bootstrap_servers is None or arguments.checkpoint is None:
        arguments.misused("the following arguments are required: --bootstrap-servers, --checkpoint")
    return _run(arguments, quick_start)


def _run_when_told(quick_start: bool) -> int:
    line = wait_for_order(quick_start)
    if not line:
        return 0
    try:
        arguments = Orders(add_options).read(line)
    except BadOrder as error:
        print(f"python -m labs run --warm: {error}", file=sys.stderr)
        return MISUSED
    return _run(arguments, quick_start)


def _run(arguments: argparse.Namespace, quick_start: bool) -> int:
    from labs.equipment.java import find_java
    from labs.faults.fault_points import Fault, FaultPoints

    faults = [Fault.parse(text) for text in arguments.fault]
    points = FaultPoints()
    with ThreadPoolExecutor(1) as beside:
        beside.submit(find_java)  # it caches the result, while PySpark is imported
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        from labs.equipment.spark import spark_session
        from labs.pipeline.query import ip_count
        from labs.pipeline.query.query_failure import why

        making = beside.submit(_sink, arguments, _also_armed_later(points))  # a second of imports, while the JVM starts
        limiting = beside.submit(_records_per_batch, arguments)
        spark = spark_session(quick_start=quick_start, **FOR_A_JOB)
        sink, records_per_batch = making.result(), limiting.result()
    records = ip_count.read_source(
        spark,
        arguments.bootstrap_servers,
        arguments.source_topic,
        arguments.starting,
        records_per_batch,
    )
    now = arguments.trigger == "available-now"
    trigger = {"availableNow": True} if now else {"processingTime": f"{float(arguments.trigger):g} seconds"}
    checkpoint = arguments.checkpoint
    with points.armed(*faults):
        try:
            counts = ip_count.count_ips(ip_count.in_few_tasks(records))
            query = ip_count.start_query(counts, _telling(sink), checkpoint, **trigger)
            _await(query)
        except (PySparkException, Py4JJavaError) as error:
            # Imported only now, since it takes as long as a JVM's start.
            from labs.evidence.checkpoint.checkpoint import damage

            torn = damage(checkpoint)
            raise RuntimeError(f"the checkpoint is damaged: {torn}" if torn else why(error)) from error
    return 0


def _records_per_batch(arguments: argparse.Namespace) -> int | None:
    """Return the limit of a micro-batch; None: no limit. Raises KafkaUnreachable."""
    if arguments.records_per_batch is not None:
        return int(arguments.records_per_batch)
    from labs.equipment.topics import end_offsets
    from labs.pipeline.records import LARGEST_BATCH

    partitions = end_offsets(arguments.bootstrap_servers, arguments.source_topic)
    return LARGEST_BATCH if len(partitions) == 1 else None


def _await(query: StreamingQuery) -> None:
    """Wait for the query's end; at Ctrl-C stop it and raise KeyboardInterrupt.

    Python must not be interrupted in the middle of a request to the JVM: py4j then closes that connection, and
    sometimes the next one too.
    """
    try:
        with interrupts_wait() as interrupted:
            while not query.awaitTermination(1) and not interrupted.is_set():
                pass
    except KeyboardInterrupt:
        query.stop()
        raise


def _also_armed_later(points: FaultPoints) -> Points:
    """Return `points` extended by the faults that another process arms while this one runs."""
    from labs.faults.fault_points import JOB_POINTS, TaskFaults

    if not (directory := os.environ.get(JOB_POINTS)):
        return points
    later = TaskFaults(directory)

    def both(point: str, batch_id: int) -> None:
        points(point, batch_id)
        later(point, batch_id)

    return both


def _sink(arguments: argparse.Namespace, points: Points) -> Sink:
    if arguments.sink.endswith(".py"):
        from labs.exercises.checker.student_module import publish_in
        from labs.runs.own_sink import sink_of

        publish, timeout = publish_in(arguments.sink), arguments.transaction_timeout_ms
        return sink_of(publish, arguments.sink_topic, arguments.bootstrap_servers, points, timeout)
    if arguments.sink in ("at-least-once", "not-idempotent"):
        from labs.pipeline.sinks.at_least_once import AtLeastOnceKafkaSink

        options = {"enable_idempotence": "false"} if arguments.sink == "not-idempotent" else {}
        return AtLeastOnceKafkaSink(
            arguments.sink_topic, bootstrap_servers=arguments.bootstrap_servers, halves=True, points=points, **options
        )
    import exactly_once_kafka.executors.transport  # noqa: F401  here, beside the JVM's start, not in the first batch
    from exactly_once_kafka.sink import ExactlyOnceKafkaSink

    kind: type[ExactlyOnceKafkaSink] = ExactlyOnceKafkaSink
    if arguments.sink == "no-marker":
        from labs.runs.staircase import WithoutMarker

        kind = WithoutMarker
    return kind(
        arguments.name,
        arguments.sink_topic,
        bootstrap_servers=arguments.bootstrap_servers,
        transaction_timeout_ms=arguments.transaction_timeout_ms,
        points=points,
        **SINK_OPTIONS.get(arguments.sink, {}),
    )


def _telling(sink: Sink) -> Sink:
    def tell(rows: DataFrame, batch_id: int) -> None:
        _say(event="begins", batch=batch_id)
        sink(rows, batch_id)
        _say(event="done", batch=batch_id)

    return tell


def _say(**event: object) -> None:
    """Print an event as JSON, without the lock of `print`: if a batch held it at Ctrl-C, Python would abort."""
    os.write(sys.stdout.fileno(), f"{json.dumps(event)}\n".encode())


class BadOrder(ValueError):
    """The line on standard input is no valid order; the message says why."""


class Orders(argparse.ArgumentParser):
    """Parses arguments like those of a command line, but raises BadOrder for wrong ones."""

    def __init__(self, add_options: Callable[[argparse.ArgumentParser], None]):
        super().__init__(prog="labs run", add_help=False, allow_abbrev=False)
        add_options(self)

    def error(self, message: str) -> NoReturn:
        raise BadOrder(message)

    def read(self, line: bytes) -> argparse.Namespace:
        """Return the arguments in the line. Raises BadOrder."""
        from labs.faults.fault_points import Fault

        try:
            words = json.loads(line)
        except ValueError as error:
            raise BadOrder(f"expected a JSON list of arguments, found no JSON: {line[:100]!r} ({error})") from None
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise BadOrder(f"expected a JSON list of arguments, each in quotes, not {line[:100]!r}")
        arguments = self.parse_args(words)
        try:
            for fault in arguments.fault:
                Fault.parse(fault)
        except ValueError as error:
            raise BadOrder(str(error)) from None
        return arguments


def wait_for_order(quick_start: bool = True) -> bytes:
    """Warm up unless there is an order already, and return the order unparsed; empty if standard input ended."""
    if not _is_told():
        _get_warm(quick_start)
    return sys.stdin.buffer.readline()


def _get_warm(quick_start: bool) -> None:
    """Start and warm up the session, and say so; stop as soon as there is an order. Raises KeyboardInterrupt."""
    from labs.equipment.spark import spark_session
    from labs.pipeline.query.warm_up import warm_up
    from labs.runs import staircase  # noqa: F401  the sinks, which take a second to import

    with interrupts_wait() as interrupted:  # else Ctrl-C would interrupt Python in the middle of a request to the JVM
        warm_up(spark_session(quick_start=quick_start, **FOR_A_JOB), lambda: interrupted.is_set() or _is_told())
    if not _is_told():
        os.write(sys.stdout.fileno(), b'{"event": "warm"}\n')


def _is_told() -> bool:
    """Tell whether standard input has a line, or has ended."""
    return bool(select.select([STDIN], [], [], 0)[0])
