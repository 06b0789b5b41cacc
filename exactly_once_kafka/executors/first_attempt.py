"""Whether a task runs for the first time: for it must be the only one that ever wrote to its Kafka partitions.

Spark tells Python the attempt of the task, and of the stage only in the name of the thread that computes the rows:
"Executor task launch worker for task 0.0 in stage 2.1 (TID 3)". The first row of each task has it, in a column.
"""

from __future__ import annotations

import re

import pyarrow
from pyspark import TaskContext

THREAD = "exactly_once_thread"
FIRST_ROW = "monotonically_increasing_id() % 8589934592 = 0"
THREAD_OF_FIRST_ROW = f"IF({FIRST_ROW}, java_method('java.lang.Thread', 'currentThread'), NULL)"
ATTEMPT_OF_STAGE = re.compile(r" in stage \d+\.(\d+) ")


def in_first_attempt(first: pyarrow.RecordBatch | None) -> bool:
    """Tell whether task and stage run for the first time. If that is not said, they do not.

    `first` are the first of the task's rows, or None if it has none: then the driver looks at the stage (`ran_again`).
    """
    context = TaskContext.get()
    return context is not None and context.attemptNumber() == 0 and (first is None or of_first_stage(first))


def of_first_stage(rows: pyarrow.RecordBatch) -> bool:
    """Tell, from the first row of a task, whether its stage runs for the first time."""
    found = ATTEMPT_OF_STAGE.search(str(rows.column(THREAD)[0]))
    return bool(found and found[1] == "0")
