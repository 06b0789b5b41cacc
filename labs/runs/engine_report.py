"""What `engines compare` found once, kept with the lab: for lessons, where no engine is installed.

Guarantee: nothing is started. Where it stops: these are runs of one machine, which the report describes; numbers of
results are what they are, and times are to be compared with each other only, as `ratios` does.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).with_name("recorded") / "engines.json"


class EngineReport:
    """A report: `machine` is where it was made, `runs` has each run as plain values."""

    def __init__(self, path: Path = RECORDED):
        found = json.loads(path.read_text())
        self.machine: dict[str, Any] = found["machine"]
        self.size: dict[str, Any] = found["size"]
        self.runs: list[dict[str, Any]] = found["runs"]

    @property
    def engines(self) -> list[str]:
        """The engines' names, in the order in which they ran first."""
        return list(dict.fromkeys(run["engine"] for run in self.runs))

    def of(self, trial: str, **wanted: object) -> list[dict[str, Any]]:
        """Return the runs of a trial, "kills", "outage" or "speed", that have these values."""
        chosen = [run for run in self.runs if run["trial"] == trial]
        return [run for run in chosen if all(run[name] == value for name, value in wanted.items())]

    def median(self, value: str, engine: str) -> float:
        """Return the median over the seeds of one value of the runs for speed. Raises ValueError if none has it."""
        found = [run[value] for run in self.of("speed", engine=engine) if run[value] is not None]
        if not found:
            raise ValueError(f"no run of {engine} has a {value}")
        return statistics.median(found)

    def ratios(self, value: str, to: str = "spark") -> dict[str, float]:
        """Return engine -> the median of a value of its runs for speed, divided by that of the engine `to`."""
        return {engine: round(self.median(value, engine) / self.median(value, to), 2) for engine in self.engines}


def recorded_engines() -> EngineReport:
    """Return the report that is kept with the lab."""
    return EngineReport()
