"""A query in Real-Time Mode as a separate process, so that a kill ends everything: the driver and its JVM.

`python -m labs.runs.real_time_job` and one argument: the fields of `RealTimeJob` as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass

from pyspark.sql.streaming import StreamingQuery

from labs.equipment.spark import spark_session
from labs.faults.fault_points import JOB_MARK, TaskFaults
from labs.pipeline.query.ip_count import read_source
from labs.pipeline.sinks.real_time_sink import (
    SHORTEST,
    RealTimeKafkaSink,
    Rule,
    by_place,
    report_each,
    start_real_time,
    start_sparks_own,
)


@dataclass(frozen=True)
class RealTimeJob:
    """A query to run: source topic, sink topic, the sink ("exactly-once" or "spark"), and the directory of the faults.

    `epoch` is in milliseconds.
    """

    servers: str
    source: str
    topic: str
    checkpoint: str
    faults: str
    sink: str = "exactly-once"
    epoch: int = 1_000

    def start(self, published: Rule = by_place) -> StreamingQuery:
        """Start the query in a new session of this process's Spark. `published` is our sink's rule."""
        spark = spark_session().newSession()  # its settings must not apply to other queries
        spark.conf.set(SHORTEST, str(min(self.epoch, 5_000)))
        rows = report_each(read_source(spark, self.servers, self.source))
        epoch = f"{self.epoch} milliseconds"
        if self.sink == "spark":
            return start_sparks_own(rows, self.servers, self.topic, self.checkpoint, epoch)
        points = TaskFaults(self.faults)
        sink = RealTimeKafkaSink(
            self.topic, self.topic, bootstrap_servers=self.servers, published=published, points=points
        )
        return start_real_time(rows, sink, self.checkpoint, epoch)


def main() -> None:
    if os.getpgrp() == os.getpid():
        os.environ[JOB_MARK] = str(os.getpid())
    RealTimeJob(**json.loads(sys.argv[1])).start().awaitTermination()


if __name__ == "__main__":
    main()
