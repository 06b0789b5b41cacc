"""Whether a stage ran once. A task without rows cannot tell (see `first_attempt`), and what it would have had to write
may be in another one by then, or twice: so the driver asks Spark, before it commits.
"""

from __future__ import annotations

import time
from collections.abc import Collection

from pyspark import SparkContext

from exactly_once_kafka.patience import Patience

REST = 0.001  # seconds between two looks


def ran_once(spark: SparkContext, stages: Collection[int | None], patience: Patience) -> bool:
    """Tell whether the tasks that have reported are of one stage, all of whose tasks ended well in its first attempt.

    Spark's listeners note that a moment after the last report is here. If they never do, it is not so.
    """
    if len(stages) != 1 or None in stages:
        return False
    [stage] = stages
    tracker = spark.statusTracker()
    while True:
        found = tracker.getStageInfo(stage)  # type: ignore[arg-type]
        if found is not None and found.currentAttemptId > 0:
            return False
        if found is not None and found.numCompletedTasks == found.numTasks:
            return True
        if not patience.lasts():
            return False
        time.sleep(REST)
