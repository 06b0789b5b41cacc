"""A query in Real-Time Mode as a process of its own, so that a kill is a real kill: the driver, its JVM and all.

`python -m labs.runs.real_time_job` and one argument: the fields of `RealTimeJob` as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass

from pyspark.sql.streaming import StreamingQuery

from exactly_once_kafka.real_time.sink import RealTimeKafkaSink
from labs.equipment.spark import spark_session
from labs.faults.fault import JOB_MARK
from labs.faults.task_fault import TaskFaults
from labs.pipeline.query.ip_count import read_source
from labs.pipeline.query.real_time import SHORTEST, report_each, start_real_time, start_sparks_own


@dataclass(frozen=True)
class RealTimeJob:
    """What to run: from which topic to which, through which sink ("exactly-once" or "spark"), with faults by `faults`.

    `epoch` is in milliseconds.
    """

    servers: str
    source: str
    topic: str
    checkpoint: str
    faults: str
    sink: str = "exactly-once"
    epoch: int = 1_000

    def start(self, kind: type[RealTimeKafkaSink] = RealTimeKafkaSink) -> StreamingQuery:
        """Start the query through a sink of this kind, in a session of its own on this process's Spark."""
        spark = spark_session().newSession()  # what is set here must not be set for other queries
        spark.conf.set(SHORTEST, str(min(self.epoch, 5_000)))
        rows = report_each(read_source(spark, self.servers, self.source))
        epoch = f"{self.epoch} milliseconds"
        if self.sink == "spark":
            return start_sparks_own(rows, self.servers, self.topic, self.checkpoint, epoch)
        points = TaskFaults(self.faults)
        sink = kind(self.topic, self.topic, bootstrap_servers=self.servers, points=points)
        return start_real_time(rows, sink, self.checkpoint, epoch)


def main() -> None:
    if os.getpgrp() == os.getpid():
        os.environ[JOB_MARK] = str(os.getpid())
    RealTimeJob(**json.loads(sys.argv[1])).start().awaitTermination()


if __name__ == "__main__":
    main()
