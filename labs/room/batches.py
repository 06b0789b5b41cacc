"""The batches of a checkpoint while they are planned, run and noted: the checkpoint's files, and what drivers tell.

Each look reads only what is new. Where it stops: a local directory, one source topic.
"""

from __future__ import annotations

import contextlib
import shutil
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labs.evidence.checkpoint.files import log_files, read_plan
from labs.room.state import BATCHES

KEPT = 100  # batches, as in Spark's own checkpoint


@dataclass
class WatchedCheckpoint:
    """What is known by now of the checkpoint of a query that runs."""

    directory: Path
    watermarks: dict[int, int] = field(default_factory=dict)  # of the planned batches, in epoch millis
    ends: dict[int, int] = field(default_factory=dict)  # planned batch -> the source's offset behind it
    noted: int = -1  # the last batch that is
    begun: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))  # batch -> drivers, in order
    _seen: dict[str, int] = field(default_factory=dict)

    def look(self) -> None:
        """Read what has been planned and noted since the last look."""
        if self._changed("offsets"):
            for number, file in sorted(log_files(self.directory / "offsets").items()):
                if number not in self.watermarks:
                    self._read(number, file)
        if self._changed("commits"):
            self.noted = max(log_files(self.directory / "commits"), default=-1)
        for known in (self.watermarks, self.ends, self.begun):
            for number in [each for each in known if each < self.noted - KEPT]:
                del known[number]

    @property
    def planned(self) -> int:
        """The last batch that is planned, -1 if none is."""
        return max(self.watermarks, default=-1)

    @property
    def in_flight(self) -> int | None:
        """The batch that is planned and not noted."""
        return self.planned if self.planned > self.noted else None

    @property
    def records(self) -> int:
        """How many records of the source are in noted batches."""
        return self.ends.get(self.noted, 0)

    @property
    def watermark_ms(self) -> int:
        """The watermark of the last noted batch: it has published every window that ends there or before."""
        return self.watermarks.get(self.noted, 0)

    def shown(self) -> list[dict[str, Any]]:
        """Return the batches of the room's state."""
        return [self._shown(number) for number in sorted(self.watermarks)[-BATCHES:]]

    def forget(self) -> None:
        """Delete the directory."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def _shown(self, number: int) -> dict[str, Any]:
        drivers = self.begun.get(number, [])
        state = "noted" if number <= self.noted else "running" if drivers else "planned"
        return {"number": number, "state": state, "driver": drivers[-1] if drivers else None, "runs": len(drivers)}

    def _changed(self, log: str) -> bool:
        with contextlib.suppress(OSError):
            changed = (self.directory / log).stat().st_mtime_ns
            if changed != self._seen.get(log):
                self._seen[log] = changed
                return True
        return False

    def _read(self, number: int, file: Path) -> None:
        try:
            plan = read_plan(file)
        except (OSError, ValueError):  # it is being written: look again
            self._seen.pop("offsets", None)
            return
        self.watermarks[number] = plan.watermark_ms or 0
        self.ends[number] = sum(plan.end.values())
