"""Whether a stage ran again. A task without rows cannot tell (see `first_attempt`), and what it would have had to write
may be in another one by then, or twice: so the driver asks Spark, before it commits.
"""

from __future__ import annotations

import time
from collections.abc import Set

from pyspark import SparkContext

SECONDS = 5.0  # for Spark's listeners to note what has happened; it takes them some milliseconds
REST = 0.001  # between two looks


def ran_again(spark: SparkContext, stages: Set[int | None]) -> bool | None:
    """Tell whether the stage of all reported tasks ran again, after tasks of its first attempt had failed.

    None if Spark does not say: it may have forgotten the stage (spark.ui.retainedStages).
    """
    if len(stages) != 1 or None in stages:
        return None
    [stage] = stages
    tracker, until = spark.statusTracker(), time.monotonic() + SECONDS
    while time.monotonic() < until:
        found = tracker.getStageInfo(stage)  # type: ignore[arg-type]
        if found is not None and found.currentAttemptId > 0:
            return True
        if found is not None and found.numCompletedTasks == found.numTasks:
            return False
        time.sleep(REST)
    return None
