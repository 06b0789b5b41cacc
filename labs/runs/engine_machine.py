"""What a comparison ran on: sizes and versions, and no name or place of anything."""

from __future__ import annotations

import os
import platform
import re
from typing import Any

import psutil
import pyspark

from labs.engines.python_environment import LOCKS
from labs.equipment.jars import FLINK, KAFKA_VERSION

LOCKED = re.compile(r"^([\w-]+)==([\w.]+)", re.MULTILINE)


def machine() -> dict[str, Any]:
    """Describe what the runs had: cores, memory and system, and no name of anything."""
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / (1 << 30)),
        "system": platform.system(),
        "processor": platform.machine(),
        "python": platform.python_version(),
        "versions": _versions(),
    }


def _versions() -> dict[str, str]:
    """Return the versions of Kafka and of each engine."""
    locks = "".join(lock.read_text() for lock in sorted(LOCKS.glob("*.txt")))
    locked = {name: version for name, version in LOCKED.findall(locks) if name != "setuptools"}
    return {
        "kafka": KAFKA_VERSION,
        "pyspark": pyspark.__version__,
        "flink connector": FLINK.rpartition(":")[2],
        "kafka-streams": KAFKA_VERSION,
        **locked,
    }
