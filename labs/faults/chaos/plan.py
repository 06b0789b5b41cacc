"""What a chaos run is to do: how much traffic, on what, and which faults."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from exactly_once_kafka.points import FAULT_POINTS
from labs.faults.chaos import broker_lane, driver_lane, network_lane
from labs.faults.chaos.journal import Strike
from labs.faults.job import SINKS

# kind -> what it does
KINDS = driver_lane.KINDS | broker_lane.KINDS | network_lane.KINDS
WITHOUT_EXECUTORS = tuple(kind for kind in KINDS if kind != "executor-kill")

# victim -> the kinds of fault that kill it
KILLS = {"driver": ("driver-kill", "driver-point"), "broker": ("broker-kill",), "executor": ("executor-kill",)}


@dataclass(frozen=True)
class ChaosPlan:
    """Traffic of `rate` records a second for so many minutes, and faults of these kinds, drawn from `seed`.

    With `least`, such as {"driver": 5, "broker": 3}, it goes on until so many of each have been killed; after
    `minutes`, only what is still to be killed is struck. Kafka has so many `nodes`. With `executors` the job runs on so
    many processes beside the driver's. `transaction_timeout` is in seconds. A driver-point is one of `points`. With
    `spare` the next driver is kept warm. Raises ValueError.
    """

    seed: int = 7
    minutes: float = 3.0
    kinds: tuple[str, ...] = WITHOUT_EXECUTORS
    nodes: int = 1
    executors: int = 0
    sink: str = "exactly-once"
    rate: float = 1_000.0
    transaction_timeout: float = 10.0
    least: Mapping[str, int] = field(default_factory=dict)
    points: tuple[str, ...] = FAULT_POINTS
    spare: bool = False

    def __post_init__(self) -> None:
        for kind in self.kinds:
            if kind not in KINDS:
                raise ValueError(f"no fault is called {kind!r}; there are {', '.join(KINDS)}")
        if "executor-kill" in self.kinds and not self.executors:
            raise ValueError("executor-kill needs executors: one or more processes beside the driver's")
        for victim in self.least:
            if not set(KILLS.get(victim, ())) & set(self.kinds):
                raise ValueError(f"none of the faults kills a {victim!r}; one can be a {', a '.join(KILLS)}")
        for point in self.points:
            if point not in FAULT_POINTS:
                raise ValueError(f"no fault point is called {point!r}; there are {', '.join(FAULT_POINTS)}")
        if "driver-point" in self.kinds and not self.points:
            raise ValueError("driver-point needs a point to strike at: points is empty")
        if self.sink not in SINKS:
            raise ValueError(f"no sink is called {self.sink!r}; there are {', '.join(SINKS)}")
        for name, value, least in (
            ("minutes", self.minutes, 0.1),
            ("nodes", self.nodes, 1),
            ("executors", self.executors, 0),
            ("rate", self.rate, 1),
            ("transaction_timeout", self.transaction_timeout, 1),
        ):
            if not value >= least:
                raise ValueError(f"{name} is {value:g}; expected {least:g} or more")

    def of(self, kinds: dict[str, str]) -> tuple[str, ...]:
        """Return those of the plan's kinds that are among these."""
        return tuple(kind for kind in self.kinds if kind in kinds)

    def is_done(self, seconds: float, strikes: Iterable[Strike], kinds: Collection[str] = tuple(KINDS)) -> bool:
        """Tell whether it has lasted long enough, and faults of these kinds have killed enough."""
        struck = [strike.kind for strike in strikes if strike.ended is not None]
        owed = {victim: least for victim, least in self.least.items() if set(KILLS[victim]) & set(kinds)}
        enough = all(sum(kind in KILLS[victim] for kind in struck) >= least for victim, least in owed.items())
        return enough and seconds >= self.minutes * 60
