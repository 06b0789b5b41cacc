"""The places on the timeline at which a run can be crashed: behind each step of each batch, and amid its rows."""

from __future__ import annotations

from typing import NamedTuple

from exactly_once_kafka.points import AFTER_COMMIT, BEFORE_CHECKPOINT, BEFORE_COMMIT, BEFORE_WRITE, MID_TRANSACTION
from labs.schedules.timeline.switches import BATCHES, ROWS

STATIONS = ("read", "plan", "compute", "begin", "rows", "marker", "commit", "note")
# Reading how far the source is, and computing, leave nothing behind: the model has no steps for them.
STATION_OF = {"plan": 1, "fence": 3, "read marker": 3, "rows": 4, "row": 4, "marker": 5, "commit": 6, "note": 7}
ROWS_STATION = STATIONS.index("rows")
POINTS = {
    "begin": (BEFORE_WRITE,),
    "half": (MID_TRANSACTION,),
    "marker": (BEFORE_COMMIT,),
    "commit": (AFTER_COMMIT, BEFORE_CHECKPOINT),
}


class Place(NamedTuple):
    """Behind `station` of `batch`, whose name is "half" amid the rows. `reached`: the first thing that comes later."""

    batch: int
    station: str
    reached: tuple[int, int, int]  # batch, station, record of the batch

    @property
    def points(self) -> tuple[str, ...]:
        return POINTS.get(self.station, ())

    @property
    def name(self) -> str:
        where = "amid the rows" if self.station == "half" else f"after {self.station}"
        points = f" ({', '.join(self.points)})" if self.points else ""
        return f"batch {self.batch}, {where}{points}"

    @property
    def at(self) -> float:
        """Where on the timeline: from 0 to 1, all steps being equally long."""
        steps = ROWS_STATION + 0.5 if self.station == "half" else STATIONS.index(self.station) + 1
        return (self.batch * len(STATIONS) + steps) / (BATCHES * len(STATIONS))


def _places() -> tuple[Place, ...]:
    found = []
    for batch in range(BATCHES):
        for n, station in enumerate(STATIONS):
            if n == ROWS_STATION:
                found.append(Place(batch, "half", (batch, n, ROWS // 2)))
            found.append(Place(batch, station, (batch, n + 1, 0)))
    return tuple(found)


PLACES = _places()
