"""The plan of a chaos run: the traffic, the cluster and the faults."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from exactly_once_kafka.points import FAULT_POINTS
from labs.faults.chaos.injectors import BROKER_KINDS, DRIVER_KINDS, NETWORK_KINDS, Strike
from labs.faults.job import known_sink

# kind of fault -> what it does
KINDS = DRIVER_KINDS | BROKER_KINDS | NETWORK_KINDS
WITHOUT_EXECUTORS = tuple(kind for kind in KINDS if kind != "executor-kill")

# victim -> the kinds of fault that kill it
KILLS = {"driver": ("driver-kill", "driver-point"), "broker": ("broker-kill",), "executor": ("executor-kill",)}


@dataclass(frozen=True)
class ChaosPlan:
    """Traffic of `rate` records a second for `minutes`, and faults of `kinds`, drawn from `seed`.

    With `least`, such as {"driver": 5, "broker": 3}, the run continues until so many of each have been killed; after
    `minutes`, only the victims that are still missing are struck. Kafka has `nodes` brokers. With `executors` the job
    has so many executor processes beside the driver's. `sink` is one of SINKS, or a file with a function publish.
    `transaction_timeout` is in seconds. A driver-point is one of `points`. With `spare` there is a hot spare for the
    driver. Raises ValueError.
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
        object.__setattr__(self, "sink", known_sink(self.sink))
        for name, value, least in (
            ("minutes", self.minutes, 0.1),
            ("nodes", self.nodes, 1),
            ("executors", self.executors, 0),
            ("rate", self.rate, 1),
            ("transaction_timeout", self.transaction_timeout, 1),
        ):
            if not value >= least:
                raise ValueError(f"{name} is {value:g}; expected {least:g} or more")

    @property
    def sink_name(self) -> str:
        """The sink's name, or that of the file that it is in."""
        return Path(self.sink).stem

    def of(self, kinds: dict[str, str]) -> tuple[str, ...]:
        """Return those of the plan's kinds that are among these."""
        return tuple(kind for kind in self.kinds if kind in kinds)

    def is_done(self, seconds: float, strikes: Iterable[Strike], kinds: Collection[str] = tuple(KINDS)) -> bool:
        """Tell whether the run has lasted long enough, and faults of these kinds have killed enough."""
        struck = [strike.kind for strike in strikes if strike.ended is not None]
        owed = {victim: least for victim, least in self.least.items() if set(KILLS[victim]) & set(kinds)}
        enough = all(sum(kind in KILLS[victim] for kind in struck) >= least for victim, least in owed.items())
        return enough and seconds >= self.minutes * 60
