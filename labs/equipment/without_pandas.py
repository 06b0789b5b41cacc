"""PySpark's look for numpy, without the pandas that comes with it.

At the first value that Python hands to the JVM, PySpark 4.2 imports `pyspark.testing.utils` to see whether numpy is
there, and that module imports pandas: a second of a driver's start, for nothing.

Guarantee: pandas can be imported as ever, before, meanwhile and afterwards. Where it stops: in a process that had not
imported pandas by then, `pyspark.testing` takes it for missing, and compares no pandas DataFrames.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Sequence
from importlib.abc import MetaPathFinder


class Hidden(MetaPathFinder):
    """A finder that denies one module to the thread that made it."""

    def __init__(self, name: str):
        self._name, self._thread = name, threading.get_ident()

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> None:
        if fullname == self._name and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def look_for_numpy() -> None:
    """Import what PySpark looks for numpy with, unless it has been imported."""
    hidden = Hidden("pandas")
    sys.meta_path.insert(0, hidden)
    try:
        importlib.import_module("pyspark.testing.utils")
    except ImportError:  # another PySpark, which may look elsewhere
        pass
    finally:
        sys.meta_path.remove(hidden)
