"""Rows leave Spark in Arrow batches, as they come.

Guarantee: Spark never waits for the reader. It hands results out on the one thread that schedules all of its jobs, so
a reader that pauses would hold up every job of the application; here a thread always takes them, into a `Spool`.

Where it stops: Spark collects a whole partition before it hands out its first row, and refuses results of more than
`spark.driver.maxResultSize` (1 GiB unless set) in one micro-batch.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import IO

import pyarrow
from pyspark.errors.exceptions.captured import unwrap_spark_exception
from pyspark.sql import DataFrame
from pyspark.sql.pandas.serializers import ArrowCollectSerializer
from pyspark.util import local_connect_and_auth

from exactly_once_kafka.errors import BatchFailed
from exactly_once_kafka.spool import IN_MEMORY, Closed, Spool


class ArrowRows:
    """Rows that Spark has begun to compute, in Arrow batches: iterate over it once, or close it.

    It is `DataFrame.toArrow` without the list that collects everything (pyspark/sql/pandas/conversion.py). Batches come
    while later ones are still being computed, the partitions in no fixed order. An error in the query is raised at the
    end, after the batches that preceded it: use nothing until then.
    """

    def __init__(self, rows: DataFrame, in_memory: int = IN_MEMORY):
        answer = rows._jdf.collectAsArrowToPython()
        # Spark begins when the connection is made, and what is not needed for that is asked for afterwards.
        file, self._connection = local_connect_and_auth(answer[0], answer[1])
        self._connection.settimeout(None)  # how long Spark computes is its own affair
        self._server = answer[2]
        self._spool, self._failures = Spool(in_memory), list[Exception]()
        self._drainer = threading.Thread(
            target=_drain, args=(file, self._spool, self._failures), name="rows-from-spark", daemon=True
        )
        self._drainer.start()
        self._finished = self._closed = False

    def __iter__(self) -> Iterator[pyarrow.RecordBatch]:
        try:
            yield from self._spool
            self._finished = True
        except OSError as error:
            raise BatchFailed(
                f"rows that Kafka has not taken yet cannot be kept in the temporary directory: {error}. Make room "
                "there, or set TMPDIR to another, and restart the query: the batch is repeated and published once"
            ) from error
        finally:
            self.close()
        if self._failures:
            raise self._failures[0]

    def close(self) -> None:
        """Have Spark stop, unless it is done."""
        if self._closed:
            return
        self._closed = True
        self._spool.close()
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)  # wakes the thread, if it waits for rows
        self._drainer.join()
        self._connection.close()
        # The stream of a query that failed ends like any other, only too soon: nothing but this tells.
        # A caller who stops early has an error of his own; Spark's complaint about that is not news.
        with _explained() if self._finished else contextlib.suppress(Exception):
            self._server.getResult()


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    try:
        with unwrap_spark_exception():
            yield
    except Exception as error:
        if "spark.driver.maxResultSize" not in str(error):
            raise
        raise BatchFailed(
            "the micro-batch is larger than what Spark lets pass through its driver, spark.driver.maxResultSize (1g "
            "unless set). Raise it (0: no limit) and restart the query: the batch is repeated and published once"
        ) from error


def _drain(file: IO[bytes], spool: Spool, failures: list[Exception]) -> None:
    try:
        # The last element is not a batch: it says in which order the batches would have to be put.
        for batch in ArrowCollectSerializer().load_stream(file):  # type: ignore[no-untyped-call]
            if isinstance(batch, pyarrow.RecordBatch):
                spool.put(batch)
    except Closed:
        pass
    except Exception as error:
        failures.append(error)  # Spark's own word on it, which `getResult` has, goes first
    finally:
        spool.finish()
        with contextlib.suppress(OSError):
            file.close()
