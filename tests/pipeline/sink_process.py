"""python -m tests.pipeline.sink_process KIND PLACE POINT: writes batch 1 into a sink and is killed at the point."""

from __future__ import annotations

import json
import os
import signal
import sys

from labs.pipeline import fault_points

QUERY = "the-query"


def values(batch_id: int, count: int) -> list[str]:
    """Return three results of a batch; another `count` makes another version of it."""
    return [json.dumps({"window_start": batch_id, "ip": f"10.0.0.{n}", "count": count}) for n in range(3)]


def sink_of(kind: str, place: str):
    if kind == "file":
        from labs.pipeline.file_sink import FileSink

        return FileSink(place)
    from labs.pipeline.database_sink import DatabaseSink

    return DatabaseSink("test", place)


if __name__ == "__main__":
    kind, place, fatal = sys.argv[1:]

    def die(point: str, batch_id: int) -> None:
        if point == fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    sink = sink_of(kind, place)
    assert not sink.is_committed(1, QUERY)
    fault_points.listener = die
    sink.write(values(1, count=1), 1, QUERY)
