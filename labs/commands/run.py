"""Run the IP count as a job of its own, from a checkpoint if there is one, and print a line per batch."""

from __future__ import annotations

import argparse
import os
import sys

EXAMPLES = """examples:
  python -m labs run --bootstrap-servers 127.0.0.1:9092 --checkpoint ./checkpoint
  python -m labs run --bootstrap-servers 127.0.0.1:9092 --checkpoint ./checkpoint --sink at-least-once \\
      --fault after_commit@2:kill
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from labs.faults.job import SINKS
    from labs.pipeline.at_least_once import SINK_TOPIC
    from labs.pipeline.source import SOURCE_TOPIC

    parser.add_argument("--bootstrap-servers", required=True, help="address of Kafka: host:port")
    parser.add_argument("--checkpoint", required=True, help="checkpoint directory (any Hadoop URI)")
    parser.add_argument("--sink", choices=SINKS, default="exactly-once")
    parser.add_argument("--name", default="ip-count", help="name of the exactly-once sink (default: %(default)s)")
    parser.add_argument("--source-topic", default=SOURCE_TOPIC, help="(default: %(default)s)")
    parser.add_argument("--sink-topic", default=SINK_TOPIC, help="(default: %(default)s)")
    parser.add_argument("--starting", default="earliest", help="where to start without a checkpoint")
    parser.add_argument("--records-per-batch", type=int, help="at most this many records in a micro-batch")
    parser.add_argument("--trigger", default="available-now", help='"available-now", or seconds between batches')
    parser.add_argument("--transaction-timeout-ms", type=int, default=60_000)
    parser.add_argument("--fault", action="append", default=[], help="POINT@BATCH, with :kill or :pause")


def run(arguments: argparse.Namespace) -> int:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    from labs.equipment.spark import spark_session
    from labs.evidence.checkpoint import damage
    from labs.faults.fault import JOB_MARK, Fault, armed
    from labs.pipeline import ip_count
    from labs.pipeline.query_failure import why

    if os.getpgrp() == os.getpid():
        os.environ[JOB_MARK] = str(os.getpid())
    faults = [Fault.parse(text) for text in arguments.fault]
    spark = spark_session()
    records = ip_count.read_source(
        spark,
        arguments.bootstrap_servers,
        arguments.source_topic,
        arguments.starting,
        arguments.records_per_batch,
    )
    now = arguments.trigger == "available-now"
    trigger = {"availableNow": True} if now else {"processingTime": f"{float(arguments.trigger):g} seconds"}
    checkpoint = arguments.checkpoint
    with armed(*faults):
        try:
            query = ip_count.start(ip_count.ip_count(records), _telling(_sink(arguments)), checkpoint, **trigger)
            try:
                query.awaitTermination()
            except KeyboardInterrupt:
                query.stop()  # or it would go on
                raise
        except (PySparkException, Py4JJavaError) as error:
            torn = damage(checkpoint)
            raise RuntimeError(f"the checkpoint is damaged: {torn}" if torn else why(error)) from error
    return 0


def _sink(arguments: argparse.Namespace):
    from labs.pipeline.at_least_once import AtLeastOnceKafkaSink
    from labs.pipeline.exactly_once import ExactlyOnceKafkaSink

    if arguments.sink == "at-least-once":
        return AtLeastOnceKafkaSink(arguments.sink_topic, bootstrap_servers=arguments.bootstrap_servers)
    return ExactlyOnceKafkaSink(
        arguments.name,
        arguments.sink_topic,
        bootstrap_servers=arguments.bootstrap_servers,
        transaction_timeout_ms=arguments.transaction_timeout_ms,
    )


def _telling(sink):
    def tell(rows, batch_id: int) -> None:
        _say(f"batch {batch_id} begins")
        sink(rows, batch_id)
        _say(f"batch {batch_id} done")

    return tell


def _say(line: str) -> None:
    """Print without the lock of `print`: held by a batch when Ctrl-C ends Python, it would end it with a core dump."""
    os.write(sys.stdout.fileno(), f"{line}\n".encode())
