"""A broker whose disk fills up under a running query: a process of its own, in a mount namespace of its own.

Prints the verdict before and after there was room again, and what the query said in between.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

from confluent_kafka import Producer

from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.equipment.broker import Broker
from labs.equipment.spark import spark_session
from labs.equipment.topics import create_topic
from labs.equipment.waiting import eventually
from labs.evidence.auditor.audit import audit
from labs.evidence.auditor.expected import count_by_window
from labs.evidence.readers.results import read_results, read_visible
from labs.pipeline.log.generate import classroom
from labs.pipeline.log.replay import close_windows, replay
from labs.pipeline.query.ip_count import count_ips, read_source, start_query
from labs.pipeline.query.query_failure import why

SIZE = 160 << 20  # bytes: a broker asks for 100 MB before it starts


def main(place: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", place], check=True)
    accesses, spark = list(classroom(windows=8)), spark_session()
    with Broker(directory=place / "kafka") as broker:
        servers = broker.bootstrap_servers
        source, results = create_topic(servers, "source", 1), create_topic(servers, "results", 1)
        close_windows(replay(accesses, servers, source).last_time_ms, servers, source)
        expected = count_by_window(accesses)
        create_topic(servers, "others", 1)
        others = Producer({"bootstrap.servers": servers, "log_level": 0})

        def run(disturb=lambda batch_id: None) -> str:
            sink = ExactlyOnceKafkaSink("disk", results, bootstrap_servers=servers, transaction_timeout_ms=10_000)

            def disturbed(rows, batch_id):
                disturb(batch_id)
                sink(rows, batch_id)

            query = start_query(
                count_ips(read_source(spark, servers, source, records_per_batch=80)), disturbed, place.parent / "state"
            )
            try:
                query.awaitTermination()
            except Exception as error:
                return why(error)
            return "no failure"

        def fill(batch_id: int) -> None:
            """Fill the disk; somebody else then writes what there is no room for, since a small batch may find some."""
            if batch_id == 5:
                with (place / "ballast").open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
                    while True:
                        ballast.write(bytes(1 << 12))
                others.produce("others", bytes(1 << 16))
                eventually(lambda: not broker.running, timeout=60)

        print("said:", run(fill))
        print("broker runs:", broker.running)
        (place / "ballast").unlink()
        broker.start()
        print("then:", audit(expected, read_visible(servers, results)).verdict)
        said = [run()]
        while said[-1] != "no failure" and len(said) < 3:  # the broker may still be busy with its log
            said.append(run())
        print("at last:", audit(expected, read_results(servers, results)).verdict)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
