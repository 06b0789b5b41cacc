"""What the lab does around a notebook's cells: it shortens some tracebacks, and cleans up after an interrupted cell.

The lab's errors say what happened and what to do, and an interrupt says only in which line the cell was. So their
traceback has the lines of cells, and no others; `%tb` shows all of it. Other errors are shown as usual.

Ctrl-C ("interrupt the kernel") or an error ends a cell early. Spark continues a streaming query whose
`awaitTermination` was interrupted, and it would write into the topic that the cell uses when it is run again. An armed
fault would hit the wrong request, and a broker that the cell has killed would be missing. So the cell's queries are
stopped, and network and broker are restored. Queries that an earlier cell started continue.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery


OURS = ("labs.", "exactly_once_kafka.")


def show_expected_errors_briefly(shell: Any) -> None:
    """Shorten the tracebacks of the lab's errors and of interrupts in `shell`; None: this is no notebook."""
    if shell is not None:
        shell.set_custom_exc((Exception, KeyboardInterrupt), _show)


def _show(
    shell: Any, kind: type[BaseException], error: BaseException, frames: TracebackType, tb_offset: int | None = None
) -> None:
    if not kind.__module__.startswith(OURS) and kind is not KeyboardInterrupt:
        shell.showtraceback((kind, error, frames), tb_offset=tb_offset)
        return
    sys.last_type, sys.last_value, sys.last_traceback = kind, error, frames  # for %tb
    cause, context = error.__cause__, error.__context__
    error.__cause__ = error.__context__ = None
    try:
        lines = shell.InteractiveTB.structured_traceback(kind, error, of_cells(frames, shell.user_ns), tb_offset=0)
    finally:
        error.__cause__, error.__context__ = cause, context
    shell._showtraceback(kind, error, lines)


def of_cells(frames: TracebackType | None, names: dict[str, Any]) -> TracebackType | None:
    """Return only the frames of cells, whose globals are `names`."""
    if frames is None:
        return None
    rest = of_cells(frames.tb_next, names)
    if frames.tb_frame.f_globals is not names:
        return rest
    return TracebackType(rest, frames.tb_frame, frames.tb_lasti, frames.tb_lineno)


STOP_TIMEOUT = "20s"  # for a query whose Python function does not return


class StoppedWithItsCell:
    """Stops the queries that a cell started when the cell ends in an exception, from `watch` to `unwatch`.

    `spark()` is the session or None. `restorer()` is called when a cell begins; the function that it returns is called
    if the cell ends in an exception.
    """

    def __init__(self, spark: Callable[[], SparkSession | None], restorer: Callable[[], Callable[[], object]]):
        self._spark, self._restorer = spark, restorer
        self._restore: Callable[[], object] = restorer()
        self._before: set[str] = set()  # the run ids of queries that are not the cell's
        self._cut_short = False
        self._shell: Any = None

    def watch(self, shell: Any) -> None:
        """Watch the cells of `shell` from now on; None: this is no notebook, and has no cells."""
        if shell is not None:
            self._shell = shell
            shell.events.register("pre_run_cell", self._cell_begins)
            shell.events.register("post_run_cell", self._cell_ended)

    def unwatch(self) -> None:
        """Stop watching. Idempotent."""
        shell, self._shell = self._shell, None
        if shell is not None:
            for event, callback in (("pre_run_cell", self._cell_begins), ("post_run_cell", self._cell_ended)):
                with contextlib.suppress(ValueError):
                    shell.events.unregister(event, callback)

    def _cell_begins(self, info: Any) -> None:
        if self._cut_short:  # perhaps during a query's `start`: then Spark started the query after `_cell_ended`
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
                print("The cell's streaming query is stopped; the cell can be run again.")

    def _active(self) -> list[StreamingQuery]:
        session = self._spark()
        if session is None:
            return []
        try:
            return list(session.streams.active)
        except Exception:  # the lesson stopped the session itself, or its JVM is gone
            return []


def stop(query: StreamingQuery, spark: SparkSession) -> None:
    """Stop the query. Raises what Spark raises if it does not stop within `STOP_TIMEOUT`.

    Spark interrupts the tasks. If that interrupts the initialisation of a class, the JVM cannot use the class any more;
    so the classes of the Kafka source are loaded first.
    """
    from labs.pipeline.query.warm_up import load_kafka_classes

    load_kafka_classes(spark)
    spark.conf.set("spark.sql.streaming.stopTimeout", STOP_TIMEOUT)
    query.stop()
