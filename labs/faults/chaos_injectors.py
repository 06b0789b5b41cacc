"""The plan of a chaos run, and the injectors that cause its faults at moments drawn from a seed.

    brokers  one at a time is killed, frozen, or restarted
    network  connections are cut, and a commit arrives long after its batch has ended
    driver   the job process is killed at random moments and at named points, frozen, and replaced

Each injector is a thread. The driver's injector is also the job's supervisor: whenever the job has ended, for whatever
reason, it starts the job again. A journal records what was done, and when, so that a run can be understood and roughly
repeated.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import psutil

from exactly_once_kafka.points import FAULT_POINTS
from labs.equipment.broker import Broker
from labs.faults.fault_points import Fault
from labs.faults.job import JobProcess, known_sink
from labs.faults.kafka_messages import Request
from labs.faults.proxy import Proxy
from labs.faults.supervisor import HotSpare


@dataclass
class Strike:
    """One fault: its kind, when it began and ended (seconds since the chaos began), and its details.

    `injected` is False for a consequence of other faults, such as a driver that ended because it lost its broker.
    """

    kind: str
    began: float
    detail: str = ""
    ended: float | None = None
    injected: bool = True

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "began": round(self.began, 1), "ended": self.ended and round(self.ended, 1)}


class Journal:
    """A list of strikes that several threads write to; `report` is called with each strike as it begins."""

    def __init__(self, report: Callable[[Strike], object] = lambda strike: None):
        self.strikes: list[Strike] = []
        self.started, self._report, self._lock = time.monotonic(), report, threading.Lock()

    @property
    def now(self) -> float:
        """Seconds since the chaos began."""
        return time.monotonic() - self.started

    def note(self, kind: str, detail: str = "", injected: bool = True) -> Strike:
        """Record a strike that has no duration."""
        now = self.now
        return self._add(Strike(kind, now, detail, now, injected))

    @contextmanager
    def strike(self, kind: str, detail: str = "") -> Iterator[Strike]:
        """Record a strike that lasts as long as the `with` block."""
        strike = self._add(Strike(kind, self.now, detail))
        try:
            yield strike
        finally:
            strike.ended = self.now

    def _add(self, strike: Strike) -> Strike:
        with self._lock:
            self.strikes.append(strike)
        self._report(strike)
        return strike


STEP = 0.05  # seconds between two checks of a condition


class Injector(threading.Thread):
    """A thread that calls `strike(kind)` with kinds drawn from `kinds`, until `calm` is called.

    Each injector has a random sequence of its own, so that its choices do not depend on the speed of the others. An
    injector that raises an exception ends, and keeps the exception in `error`.
    """

    target = ""
    gap = (5.0, 15.0)  # seconds between two strikes

    def __init__(self, kinds: tuple[str, ...], seed: int, journal: Journal):
        super().__init__(name=f"chaos-{self.target}", daemon=True)
        self.kinds, self.journal = kinds, journal
        self.random = Random(f"{seed} {self.target}")
        self.error: Exception | None = None
        self._calm = threading.Event()

    def calm(self) -> None:
        """Stop striking. When the thread has ended, everything that it broke is repaired."""
        self._calm.set()

    @property
    def is_calm(self) -> bool:
        return self._calm.is_set()

    def run(self) -> None:
        try:
            self.work()
        except Exception as error:
            self.error = error

    def work(self) -> None:
        while self.kinds and not self._calm.wait(self.random.uniform(*self.gap)):
            self.strike(self.random.choice(self.kinds))

    def strike(self, kind: str) -> None:
        raise NotImplementedError

    def wait(self, seconds: float, until: Callable[[], object] = lambda: False) -> bool:
        """Wait for so many seconds, or until `until()` is true. Tell whether it was."""
        deadline = self.journal.now + seconds
        while not (met := until()) and self.journal.now < deadline:
            threading.Event().wait(STEP)
        return bool(met)


BROKER_KINDS = {
    "broker-kill": "SIGKILL of a broker, which comes back after 0 to 4 s",
    "broker-pause": "SIGSTOP of a broker, and SIGCONT after 2 to 12 s",
    "broker-restart": "a clean restart of a broker",
}


class BrokerInjector(Injector):
    """Kills, freezes or restarts one node at a time; it runs again before the next strike."""

    target = "broker"

    def __init__(self, kinds: tuple[str, ...], seed: int, journal: Journal, broker: Broker):
        super().__init__(kinds, seed, journal)
        self._broker = broker

    def strike(self, kind: str) -> None:
        node = self.random.randrange(len(self._broker.nodes))
        away = self.random.uniform(0, 4) if kind == "broker-kill" else self.random.uniform(2, 12)
        with self.journal.strike(kind, f"node {node}"):
            if kind == "broker-kill":
                self._broker.kill(node)
                self.wait(away)
                self._broker.start(node)
            elif kind == "broker-pause":
                self._broker.pause(node)
                self.wait(away)
                self._broker.resume(node)
            else:
                self._broker.restart(node)


NETWORK_KINDS = {
    "network-cut": "all connections to a broker are cut",
    "late-commit": "an EndTxn is held back, its client cut off, and the EndTxn delivered 1 to 5 s later",
}


class NetworkInjector(Injector):
    """Cuts connections, or delivers a commit late, through the proxy."""

    target = "network"

    def __init__(self, kinds: tuple[str, ...], seed: int, journal: Journal, proxy: Proxy):
        super().__init__(kinds, seed, journal)
        self._proxy = proxy

    def strike(self, kind: str) -> None:
        late = self.random.uniform(1, 5)
        if kind == "network-cut":
            self.journal.note(kind)
            self._proxy.cut()
            return
        held = self._proxy.hold_next_request(Request.END_TXN)
        if not self.wait(15, until=lambda: held.struck.is_set() or self.is_calm) or not held.struck.is_set():
            self._proxy.disarm()
            return
        with self.journal.strike(kind) as strike:
            self.wait(late)
            try:
                strike.detail = f"answered {held.deliver().error or 'no error'}"
            except (OSError, TimeoutError) as error:
                strike.detail = f"not delivered: {error}"


DRIVER_KINDS = {
    "driver-kill": "SIGKILL of the driver, at a random moment",
    "driver-point": "SIGKILL of the driver, at a random fault point",
    "driver-pause": "SIGSTOP of the driver until its transaction has timed out, then SIGCONT; in half of the "
    "cases a successor has taken over meanwhile",
    "executor-kill": "SIGKILL of an executor",
}
STARTING = 120.0  # seconds that a driver may take to its first batch
WARMING = 25  # batches of at least half a second each, during which the next spare warms up
TOO_MANY = 8  # drivers in a row that end by themselves before their first batch


class DriverInjector(Injector):
    """Runs the job (`options` as for JobProcess) until `stop`, and strikes its drivers and executors.

    `timeout` is the transaction timeout in seconds. What the drivers print is appended to the file `log`. A
    driver-point fault strikes at one of `points`. With `spare`, each driver is taken from a `HotSpare`.
    """

    target = "driver"

    def __init__(
        self,
        kinds: tuple[str, ...],
        seed: int,
        journal: Journal,
        options: Mapping[str, Any],
        timeout: float,
        log: Path,
        points: tuple[str, ...] = FAULT_POINTS,
        spare: bool = False,
    ):
        super().__init__(kinds, seed, journal)
        self._options = {name: value for name, value in options.items() if name != "environment"}
        self._environment = options.get("environment")
        self._timeout, self._log, self._points = timeout, log, points
        self._stopped, self._with_spare = False, spare
        self._spare: HotSpare | None = None
        self._failed_starts = 0
        self._killed: JobProcess | None = None

    def stop(self) -> None:
        """End the job and the injector. Call it after `calm`, when the results have arrived."""
        self.calm()
        self._stopped = True
        if self.ident:
            self.join()

    def work(self) -> None:
        with contextlib.ExitStack() as until_the_end:
            if self._with_spare:
                report = lambda words: self.journal.note("no-spare", words, injected=False)  # noqa: E731
                self._spare = until_the_end.enter_context(HotSpare(self._environment, report))
            while not self._stopped:
                self._run_driver()

    def _start_driver(self, *faults: Fault) -> JobProcess:
        if self._spare:
            return self._spare.take(faults, **self._options)
        return JobProcess(faults, self._environment, **self._options)

    def _run_driver(self) -> None:
        """Start a driver and strike it until it has ended."""
        kind = self._draw(self.kinds)
        fault = self._draw_point() if kind == "driver-point" else None
        job = self._start_driver(*([fault] if fault else []))
        try:
            while job.running and not self._stopped:
                job = self._strike(kind, job, fault)
                # A driver gets its fault point when it starts, so a running driver cannot get one.
                kind = self._draw(tuple(each for each in self.kinds if each != "driver-point"))
            self._note_exit(job, fault)
        finally:
            self._end(job)

    def _draw(self, kinds: tuple[str, ...]) -> str | None:
        return self.random.choice(kinds) if kinds and not self.is_calm else None

    def _draw_point(self) -> Fault:
        point, later = self.random.choice(self._points), self.random.randint(1, 4)
        return Fault(point, self._next_batch() + later + (WARMING if self._with_spare else 0), "kill")

    def _strike(self, kind: str | None, job: JobProcess, fault: Fault | None) -> JobProcess:
        """Let the driver work for a moment, then strike; return the driver that runs afterwards."""
        early = kind == "driver-kill" and self.random.random() < 0.25
        if not early:
            self.wait(STARTING, until=lambda: (_works(job) and self._has_warm_spare()) or self._is_over(job))
        self.wait(self.random.uniform(0.2, 10 if early else 5), until=lambda: self._is_over(job))
        if kind is None or self.is_calm or not job.running:
            self.wait(1, until=lambda: self._is_over(job))
        elif kind == "driver-point" and fault:
            # A batch without rows does not reach every point.
            self.wait(STARTING, until=lambda: self._is_over(job) or self._next_batch() > fault.batch + 1)
        elif kind == "driver-kill":
            self.journal.note(kind, "" if _works(job) else "before its first batch")
            self._killed = job
            job.kill()
        elif kind == "driver-pause":
            return self._pause(job)
        else:
            self._kill_executor(job)
        return job

    def _has_warm_spare(self) -> bool:
        """Tell whether the next spare is warm or has ended; True without spares. A strike before means a cold start."""
        if self._spare is None:
            return True
        waiting = self._spare.waiting
        return waiting is not None and (waiting.is_warm or not waiting.running)

    def _is_over(self, job: JobProcess) -> bool:
        return self._stopped or not job.running

    def _note_exit(self, job: JobProcess, fault: Fault | None) -> None:
        """Record how a driver ended, unless this injector has killed it."""
        if job.running or job is self._killed:
            return
        self._failed_starts = 0 if fault or _works(job) else self._failed_starts + 1
        if fault and job.exit_code == -signal.SIGKILL:
            self.journal.note("driver-point", f"{fault.point}@{fault.batch}")
        else:
            self.journal.note("driver-ended", job.last_line(), injected=False)
        if self._failed_starts == TOO_MANY:
            raise RuntimeError(
                f"the driver ended {TOO_MANY} times before its first batch; last line: {job.last_line()}"
            )

    def _pause(self, job: JobProcess) -> JobProcess:
        """Freeze the driver until its transaction has timed out; return the driver that runs afterwards."""
        with_successor = self.random.random() < 0.5
        detail = "with a successor" if with_successor else "no successor"
        with self.journal.strike("driver-pause", detail) as strike:
            job.pause()
            if not with_successor:
                self.wait(self._timeout + 3)
                job.resume()
                return job
            successor = self._start_driver()
            self.wait(STARTING, until=lambda: _works(successor) or self._is_over(successor))
            self._wake(job, strike)
        return successor

    def _wake(self, zombie: JobProcess, strike: Strike) -> None:
        zombie.resume()
        if self.wait(60, until=lambda: not zombie.running):
            strike.detail += f"; the old one: {zombie.last_line()}"
        else:
            strike.detail += "; the old one had nothing to write, and was killed"
        self._end(zombie)

    def _kill_executor(self, job: JobProcess) -> None:
        executors = sorted(job.executors(), key=lambda executor: executor.pid)
        if executors:
            victim = self.random.choice(executors)
            self.journal.note("executor-kill", f"one of {len(executors)}")
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()  # psutil checks its start time: another process may have its id by now
            batches = job.batches_done()
            self.wait(STARTING, until=lambda: job.batches_done() > batches + 1 or self._is_over(job))

    def _next_batch(self) -> int:
        offsets = Path(self._options["checkpoint"], "offsets")
        return max((int(file.name) for file in offsets.glob("[0-9]*")), default=-1) + 1

    def _end(self, job: JobProcess) -> None:
        job.resume()
        with self._log.open("a") as log:
            log.write(f"--- driver {job.group}\n{job.output()}\n")
        job.close()


def _works(job: JobProcess) -> bool:
    return job.batches_done() > 0


# kind of fault -> what it does
KINDS = DRIVER_KINDS | BROKER_KINDS | NETWORK_KINDS
WITHOUT_EXECUTORS = tuple(kind for kind in KINDS if kind != "executor-kill")

# victim -> the kinds of fault that kill it
KILLS = {"driver": ("driver-kill", "driver-point"), "broker": ("broker-kill",), "executor": ("executor-kill",)}


@dataclass(frozen=True)
class ChaosPlan:
    """Traffic of `rate` records a second for `minutes`, and faults of `kinds`, drawn from `seed`.

    With `least`, such as {"driver": 5, "broker": 3}, the run continues until at least that many of each have been
    killed; after `minutes`, only injectors whose victims have not been killed that often go on. Kafka has `nodes`
    brokers. The job has `executors` executor processes beside the driver's. `sink` is one of SINKS, or a file with a
    function publish. `transaction_timeout` is in seconds. A driver-point fault strikes at one of `points`. With `spare`
    there is a hot spare for the driver. Raises ValueError.
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
        """Tell whether `minutes` are over, and the victims of these kinds have been killed as often as `least` says."""
        struck = [strike.kind for strike in strikes if strike.ended is not None]
        owed = {victim: least for victim, least in self.least.items() if set(KILLS[victim]) & set(kinds)}
        enough = all(sum(kind in KILLS[victim] for kind in struck) >= least for victim, least in owed.items())
        return enough and seconds >= self.minutes * 60
