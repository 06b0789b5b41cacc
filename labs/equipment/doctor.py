"""Tell whether this machine can run the lab: what was found, and the cure for what is missing.

The last two checks use the real thing: a transaction through a broker, and its records again through Spark.
`pandas.DataFrame(checks())` makes a table of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from labs.equipment.check import Check, follow
from labs.equipment.machine import MACHINE
from labs.equipment.round_trip import bench

__all__ = ["Check", "checks"]


def checks(starting: Callable[[str], object] = lambda name: None) -> Iterator[Check]:
    """Check one thing after the other; `starting` is told the name of each before it is looked at."""
    with contextlib.ExitStack() as stack:
        yield from follow([*MACHINE, *bench(stack)], starting)
