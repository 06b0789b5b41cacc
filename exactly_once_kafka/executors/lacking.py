"""What becomes of a task where the executor lacks this library, or something that it needs: it says so.

What is sent to an executor is a function by value, which asks for the library only when it is called. As an exception
that would have Spark run the task again, perhaps where the library is, and the second attempt at a task may not write.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import Any

from pyspark import cloudpickle

from exactly_once_kafka.options import NO_ASSERTS

LACKING = "LACKING: "
NEEDED = "exactly_once_kafka|kafka|pyarrow|numpy|google_crc32c|confluent_kafka"
SAID = (
    rf"^(?:ModuleNotFound|Import)Error: .*'(?:{NEEDED})\b.*",
    r"\[PACKAGE_NOT_INSTALLED\].*",
    r"\[PYTHON_VERSION_MISMATCH\].*",
    r"Cannot run program .*",
)
FILES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile")


class Lacking(Exception):
    """What an executor lacks to write at all; the driver may have it."""


def look_around(connection: dict[str, Any]) -> None:
    """Raises Lacking if a file that the connection needs cannot be read on this machine, or under `python -O`."""
    if not __debug__:
        raise Lacking(NO_ASSERTS)
    for name in FILES:
        if (path := connection.get(name)) and not os.access(path, os.R_OK):
            raise Lacking(f"file {path} is not there, or not to be read")


def lacking_in(error: str) -> str | None:
    """Return the line of an error of Spark's that says what its Python lacks, or that there is none."""
    found = re.search("|".join(SAID), error, re.MULTILINE)
    return found[0] if found else None


def reporting(function: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
    """Return, by value, a function that yields reports; where it cannot be had for want of modules, it reports that."""
    pickled, prefix = cloudpickle.dumps(function), LACKING  # type: ignore[no-untyped-call]

    def call(batches: Any) -> Iterator[Any]:
        import json
        import pickle

        import pyarrow

        try:
            write = pickle.loads(pickled)
        except ImportError as error:
            report = {"error": f"{prefix}{type(error).__name__}: {error}"}
            yield pyarrow.RecordBatch.from_pylist([{"report": json.dumps(report)}])
            return
        yield from write(batches)

    return call
