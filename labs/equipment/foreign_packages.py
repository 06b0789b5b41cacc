"""Finds packages that Python imports from PYTHONPATH instead of the lab's installation."""

from __future__ import annotations

import importlib.util
import os
import site
import sys
from pathlib import Path

PACKAGES = ("pyspark", "py4j", "kafka", "confluent_kafka", "pyarrow", "numpy", "pandas", "psutil", "rich", "jgo")


def foreign_packages() -> str:
    """Return which packages hide the installed ones, where they are, and what to do; "" if none does."""
    named = [Path(each).resolve() for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    found = {name: _place(name) for name in PACKAGES if _is_installed(name)}
    hiding = {name: place for name, place in found.items() if place and place.parent in named}
    if "PYSPARK_GATEWAY_PORT" in os.environ or not hiding:  # spark-submit puts its own Spark into PYTHONPATH
        return ""
    what = "; ".join(f"{name} is that of {place.parent}, which PYTHONPATH names" for name, place in hiding.items())
    return f"{what}, and not the one that is installed\nUnset PYTHONPATH, or take that directory out of it"


def _is_installed(name: str) -> bool:
    return any(Path(each, name).exists() for each in site.getsitepackages())


def _place(name: str) -> Path | None:
    """Return the folder, or the file, that an import of this name takes."""
    try:
        spec = getattr(sys.modules.get(name), "__spec__", None) or importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    folders = list(spec.submodule_search_locations or ())
    return Path(folders[0] if folders else spec.origin or "").resolve()
