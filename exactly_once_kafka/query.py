"""The streaming query of a batch, as the driver's JVM knows it: its plans, its checkpoint, and whether it has ended.

PySpark passes `foreachBatch` a DataFrame and a number. The query's id and its plans come from its StreamExecution,
which Spark keeps in a table of the session's shared state; tested with Spark 4.0 to 4.2.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, ClassVar, cast
from urllib.parse import quote, unquote

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import DataFrame

from exactly_once_kafka.plan import plan_of
from exactly_once_kafka.protocol import MarkerMismatch

NOTES = "exactly-once"  # a directory in the checkpoint


class NoQuery(RuntimeError):
    """The sink cannot find out the query's id or the plan of a batch; the message says why."""


def run_of(rows: DataFrame) -> tuple[str, str]:
    """Return the id of the query and the id of its run. All runs with one checkpoint have the same query id.

    The run's id comes from Spark's job group, so it is wrong if the program has set another job group. Raises NoQuery.
    """
    if type(rows).__module__.startswith("pyspark.sql.connect"):
        raise NoQuery(
            "the rows are those of Spark Connect, which is not supported: the sink needs access to the driver's own "
            "process. Run the query with a classic session (SparkSession.builder.master(…))"
        )
    context = rows.sparkSession.sparkContext
    query_id = context.getLocalProperty("sql.streaming.queryId")
    if not query_id:
        raise NoQuery(
            "the sink was called without the id of a streaming query, so it could not tell the next batch from one of "
            "another query or checkpoint. Call the sink in foreachBatch, in the thread in which Spark calls your "
            "function, or in one that inherits from it: a pyspark.InheritableThread, or any that runs "
            "pyspark.inheritable_thread_target(function). And do not set PYSPARK_PIN_THREAD=false"
        )
    return query_id, context.getLocalProperty("spark.jobGroup.id") or ""


class RunningQuery:
    """One run of a query, found from the rows of one of its batches. Raises NoQuery.

    `noted_as` names the note that the calling sink leaves in the checkpoint.
    """

    _called: ClassVar[dict[str, set[str]]] = {}  # for each run in this process, the notes of the sinks that it called

    def __init__(self, rows: DataFrame, noted_as: str = ""):
        self.id, _ = run_of(rows)
        self._last_plan: dict[int, str] = {}
        session = rows.sparkSession
        try:
            self._jvm = cast(Any, session._jvm)
            self._configuration = session._jsparkSession.sessionState().newHadoopConf()
            queries = session._jsparkSession.sharedState().activeStreamingQueries()
            self._execution = queries.get(self._jvm.java.util.UUID.fromString(self.id))
            self.run = str(self._execution.runId().toString())
            self._log = self._execution.offsetLog()
            self._buffer = self._jvm.java.io.ByteArrayOutputStream
            checkpoint = self._jvm.org.apache.hadoop.fs.Path(self._execution.resolvedCheckpointRoot()).toUri()
            self._files = Path(checkpoint.getPath(), "offsets") if checkpoint.getScheme() == "file" else None
        except (Py4JError, AttributeError, TypeError) as error:
            raise NoQuery(_unknown_spark(session.version, error)) from error
        self._called.setdefault(self.run, set()).add(noted_as)

    def plan(self, batch_id: int) -> str:
        """Return the plan of a batch from the query's offset log. The plan that was read last is cached."""
        if batch_id not in self._last_plan:
            self._last_plan = {batch_id: self._plan(batch_id)}
        return self._last_plan[batch_id]

    def _plan(self, batch_id: int) -> str:
        try:
            return plan_of(self._from_file(batch_id) or self._from_log(batch_id))
        except (Py4JError, TypeError, ValueError) as error:
            raise NoQuery(_unknown_spark("this version", error)) from error

    def _from_file(self, batch_id: int) -> str | None:
        """Return the entry if it is a local file, else None. Reading it through the JVM takes 5 % of a small batch."""
        if self._files is not None:
            with contextlib.suppress(OSError):
                return (self._files / str(batch_id)).read_text(encoding="utf-8")
        return None

    def _from_log(self, batch_id: int) -> str:
        entry, text = self._log.get(batch_id), self._buffer()
        if entry.isEmpty():
            raise NoQuery(f"the query's checkpoint has no offsets/{batch_id}, the plan of that batch")
        self._log.serialize(entry.get(), text)
        return str(text.toString())

    def stopped(self) -> bool:
        return not self._execution.isActive()

    def checkpoint_note(self, name: str) -> CheckpointNote:
        """Return the note that sink `name` leaves in the query's checkpoint."""
        path = self._jvm.org.apache.hadoop.fs.Path
        directory = path(path(self._execution.resolvedCheckpointRoot()), NOTES)
        with _checkpoint_errors():
            note = CheckpointNote(path(directory, file_of(name)), directory, self._jvm, self._configuration)
        note.called = self._called[self.run]
        return note


class CheckpointFailed(RuntimeError):
    """The checkpoint cannot be read or written; the message says why."""


def file_of(sink: str) -> str:
    """Return the file name of a sink's note. Those of unfinished notes begin with a dot, and this one does not."""
    quoted = quote(sink, safe="")
    return f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted


class CheckpointNote:
    """A small file in the checkpoint, on whatever file system that is. Raises CheckpointFailed.

    A sink writes the note before it publishes batch 0: it says where the sink keeps its marker. `called` has the names
    of the notes of all sinks that this run of the query has called.
    """

    called: Collection[str] = ()

    def __init__(self, path: Any, directory: Any, jvm: Any, configuration: Any):
        self._path, self._directory, self.name = path, directory, path.getName()
        self._unfinished = jvm.org.apache.hadoop.fs.Path(directory, f".{jvm.java.util.UUID.randomUUID()}")
        self._files = path.getFileSystem(configuration)

    def read(self) -> str | None:
        """Return what was written, or None if there is nothing."""
        with _checkpoint_errors():
            if not self._files.exists(self._path):
                return None
            stream = self._files.open(self._path)
            try:
                return bytes(stream.readAllBytes()).decode()
            finally:
                stream.close()

    def others(self) -> list[str]:
        """Return the names of the sinks that have left a note here and were not called in this run."""
        with _checkpoint_errors():
            if not self._files.exists(self._directory):
                return []
            names = [each.getPath().getName() for each in self._files.listStatus(self._directory)]
        noted = {unquote(name) for name in names if name != self.name and not name.startswith(".")}
        return sorted(noted.difference(self.called))

    def write(self, text: str) -> None:
        """Write a temporary file and rename it, so that nobody reads a part of the note."""
        with _checkpoint_errors():
            stream = self._files.create(self._unfinished, True)
            stream.write(bytearray(text.encode()))
            stream.hsync()
            stream.close()
            if not self._files.rename(self._unfinished, self._path):  # some file systems raise, others say so
                raise CheckpointFailed(f"{self._unfinished} could not be renamed to {self._path}")


def place_at_first(note: CheckpointNote, place: str | None, what: str) -> str | None:
    """Return the place of the marker that the note names; None if there is no note, so batch 0 is not published.

    `place` is where the sink looked, and found no marker; `what` describes it in a message. Raises MarkerMismatch if
    batch 0 may have been published.
    """
    first = note.read()
    if first not in (None, place):
        raise MarkerMismatch(
            f"{what} was deleted, or deleted and created again; batch 0 may have been published before that. If it was "
            f"not, delete {NOTES}/{note.name} in the checkpoint"
        )
    if first is None and (others := note.others()):
        raise MarkerMismatch(
            f"batch 0 may have been published by the sink {others[0]!r}, which the query began with and has not called "
            "in this run. Give the sink its name again; or, if the query has several sinks, call that one first; or, "
            f"if it published nothing, delete {NOTES}/{quote(others[0], safe='')} in the checkpoint"
        )
    return first


@contextlib.contextmanager
def _checkpoint_errors() -> Iterator[None]:
    try:
        yield
    except Py4JJavaError as error:
        raise CheckpointFailed(str(error.java_exception).splitlines()[0]) from error


def _unknown_spark(version: str, error: Exception) -> str:
    return (
        f"the plan of the batch cannot be read from Spark {version} ({str(error).splitlines()[0]:.200}); the sink "
        "knows Spark 4.0 to 4.2, classic (not Connect). Without the plan, one batch N cannot be told from another"
    )
