"""python -m tests.pipeline.sink_process KIND PLACE POINT: writes batch 1 into a sink and is killed at the point."""

from __future__ import annotations

import json
import os
import signal
import sys

from exactly_once_kafka.points import pass_by
from exactly_once_kafka.protocol import Batch

QUERY = "the-query"


def batch(number: int, query_id: str = QUERY, plan: str = "as planned") -> Batch:
    """Return what Spark would call batch `number`; another `plan` makes another batch of it."""
    return Batch(query_id, number, f"{plan} {number}", f"{plan} {number - 1}" if number else None)


def values(batch_id: int, count: int) -> list[str]:
    """Return three results of a batch; another `count` makes another version of it."""
    return [json.dumps({"window_start": batch_id, "ip": f"10.0.0.{n}", "count": count}) for n in range(3)]


def drained(sink, of_batch: Batch, values) -> bool:
    """Publish the values, and tell whether the batch was published before and only executed."""
    executed = list[int]()
    sink.publish_values(of_batch, values, lambda: executed.append(of_batch.batch_id))
    return bool(executed)


def sink_of(kind: str, place: str, points=pass_by):
    if kind == "file":
        from labs.pipeline.sinks.file_sink import FileSink

        return FileSink(place, points=points)
    from labs.pipeline.sinks.database_sink import DatabaseSink

    return DatabaseSink("test", place, points=points)


if __name__ == "__main__":
    kind, place, fatal = sys.argv[1:]

    def die(point: str, batch_id: int) -> None:
        if point == fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    sink = sink_of(kind, place, die)
    assert not drained(sink, batch(1), values(1, count=1))
