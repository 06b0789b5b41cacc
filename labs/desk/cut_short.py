"""What a cell leaves running when it is cut short, by Ctrl-C ("interrupt the kernel") or by an error.

Spark goes on with a streaming query whose `awaitTermination` was interrupted: it would write into the topic that the
cell writes into when it is run again. A fault that is armed would strike the wrong request, and a broker that the cell
has killed would be missing. So the queries end with the cell, and the rest is as it was before. A query that an earlier
cell started goes on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

STOP_TIMEOUT = "20s"  # for a query whose Python function does not return


class StoppedWithItsCell:
    """From `watch` to `unwatch`: when a cell ends in an exception, the queries that it started are stopped.

    `spark()` is the session or None. `restorer()` is called as a cell begins, and what it returns if it is cut short.
    """

    def __init__(self, spark: Callable[[], SparkSession | None], restorer: Callable[[], Callable[[], object]]):
        self._spark, self._restorer = spark, restorer
        self._restore: Callable[[], object] = restorer()
        self._before: set[str] = set()  # the run ids of queries that are not the cell's
        self._cut_short = False
        self._shell: Any = None

    def watch(self, shell: Any) -> None:
        """Look after the cells of `shell` from now on; None is no notebook, and has no cells."""
        if shell is not None:
            self._shell = shell
            shell.events.register("pre_run_cell", self._cell_begins)
            shell.events.register("post_run_cell", self._cell_ended)

    def unwatch(self) -> None:
        """Do so no more. Twice is once."""
        shell, self._shell = self._shell, None
        if shell is not None:
            for event, callback in (("pre_run_cell", self._cell_begins), ("post_run_cell", self._cell_ended)):
                with contextlib.suppress(ValueError):
                    shell.events.unregister(event, callback)

    def _cell_begins(self, info: Any) -> None:
        if self._cut_short:  # in the middle of `start`: then Spark may have started the query a moment later
            self._stop_started()
        self._cut_short, self._before = False, {str(query.runId) for query in self._active()}
        self._restore = self._restorer()

    def _cell_ended(self, result: Any) -> None:
        self._cut_short = result.error_in_exec is not None
        if self._cut_short:
            self._restore()
            self._stop_started()

    def _stop_started(self) -> None:
        for query in self._active():
            if str(query.runId) not in self._before:
                stop(query, cast("SparkSession", self._spark()))
                print("The streaming query that the cell had started is stopped; the cell can be run again.")

    def _active(self) -> list[StreamingQuery]:
        session = self._spark()
        if session is None:
            return []
        try:
            return list(session.streams.active)
        except Exception:  # a session that the lesson stopped itself, or whose JVM is gone, has no queries
            return []


def stop(query: StreamingQuery, spark: SparkSession) -> None:
    """Stop the query. Raises what Spark raises if it does not stop within `STOP_TIMEOUT`.

    Spark interrupts the tasks. A class whose initialisation is interrupted cannot be used in that JVM any more, so
    those of the Kafka source are loaded first.
    """
    from labs.pipeline.query.warm_up import load_kafka_classes

    load_kafka_classes(spark)
    spark.conf.set("spark.sql.streaming.stopTimeout", STOP_TIMEOUT)
    query.stop()
