"""The room's drivers: job processes that are started, killed and frozen, and replaced when none lives.

Guarantee: only processes that were started here get a signal, and none outlives `close`. A frozen driver is not
replaced, since it may wake up; the order start-driver starts a second one beside it. If the sink refuses two drivers in
a row, no third is started, since the sink would refuse it too.
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

from labs.faults.job import JobProcess, events_in
from labs.faults.supervisor import HotSpare
from labs.room.state import DRIVERS_SHOWN

STATES = ("warming", "warm", "starting", "working", "frozen", "killed", "fenced", "refused", "ended")
GONE = ("killed", "fenced", "refused", "ended")
TOO_MANY = 3  # drivers in a row that end by themselves before their first batch
START = 25.0  # seconds that a driver takes to start, before one has shown how long it takes here
LAST = 20_000  # characters at the end of a driver's output, in which the reason of its end is looked for

Options = Callable[[], Mapping[str, Any]]


class Driver:
    """One job process, what it has reported, and why it ended."""

    def __init__(self, number: int, job: JobProcess, was_warm: bool = False):
        self.number, self.job, self.was_warm = number, job, was_warm
        self.state = "starting"
        self.batch: int | None = None  # the one that it began last
        self.epoch: int | None = None
        self.done = 0  # batches
        self.words = ""  # why it ended
        self.began = time.monotonic()
        self._position = 0

    @property
    def gone(self) -> bool:
        return self.state in GONE

    def news(self) -> list[dict[str, Any]]:
        """Return the events that it has reported since the last call."""
        with contextlib.suppress(OSError), self.job.log_file.open("rb") as log:
            log.seek(self._position)
            printed = log.read()
            whole = printed[: printed.rfind(b"\n") + 1]
            self._position += len(whole)
            return events_in(whole.decode(errors="replace"))
        return []

    def hear(self, event: Mapping[str, Any]) -> None:
        """Note an event of this driver."""
        if event["event"] in ("begins", "done") and self.state == "starting":
            self.state = "working"
        if event["event"] == "begins":
            self.batch = event["batch"]
        self.done += event["event"] == "done"

    def freeze(self) -> None:
        """Send SIGSTOP."""
        self.job.pause()
        self.state = "frozen"

    def wake(self) -> None:
        """Send SIGCONT: it continues where it was."""
        self.job.resume()
        self.state = "working" if self.batch is not None else "starting"

    def end(self, state: str = "") -> None:
        """Note that it is gone, and close its process. Without a `state`, its output says how it ended."""
        if not state:
            state, self.words = _last_words(self.job)
        self.state = state
        self.job.close()

    def shown(self) -> dict[str, Any]:
        return {"number": self.number, "state": self.state, "batch": self.batch, "epoch": self.epoch}


class Drivers:
    """Starts drivers with `options()` in `environment`; each event is passed to `told(driver, event)`."""

    def __init__(
        self, options: Options, told: Callable[[Driver, Mapping[str, Any]], object], environment: Mapping[str, str]
    ):
        self.stuck = ""  # why no driver is started any more
        self.all: list[Driver] = []  # the last ones, among them all that live
        self._options, self._told, self._environment = options, told, environment
        self._spare: HotSpare | None = None
        self._count = self._in_vain = 0
        self._usual = {False: START, True: 3.0}  # seconds of a start: cold, and of a warm spare
        self._wanted = False

    @property
    def living(self) -> list[Driver]:
        return [driver for driver in self.all if not driver.gone]

    @property
    def spare_wanted(self) -> bool:
        return self._spare is not None

    def find(self, number: int | None, *states: str) -> Driver | None:
        """Return the newest driver in one of the states, with this number unless it is None."""
        found = [each for each in self.all if each.state in states and number in (None, each.number)]
        return found[-1] if found else None

    def start(self) -> Driver:
        """Start one more driver."""
        self._wanted, self.stuck, self._in_vain = True, "", 0
        return self._start()

    def keep_spare(self, on: bool) -> None:
        """Keep a hot spare from now on, or end it."""
        if on and self._spare is None:
            self._spare = HotSpare(self._environment)
        elif not on and self._spare:
            self._spare.close()
            self._spare = None

    def shown(self) -> list[dict[str, Any]]:
        """Return `drivers` of the room's state: those that were started, and the waiting spare."""
        spare = self._spare.waiting if self._spare else None
        shown = [driver.shown() for driver in self._all_but_the_oldest_gone(1 if spare else 0)]
        if spare:
            state = "warm" if spare.is_warm else "warming"
            shown.append({"number": self._count + 1, "state": state, "batch": None, "epoch": None})
        return shown

    def waiting(self) -> str:
        """Return what results wait for, as in "driver 2 is starting, about 20 s"; empty while a driver works."""
        states = {driver.state: driver for driver in self.living}
        if "working" in states:
            return ""
        if driver := states.get("starting"):
            usual = self._usual[driver.was_warm]
            left = usual - (time.monotonic() - driver.began)
            about = f"about {math.ceil(left / 5) * 5} s" if left > 0 else f"longer than the usual {usual:.0f} s"
            return f"driver {driver.number} is starting, {about}"
        if driver := states.get("frozen"):
            return f"driver {driver.number} is frozen"
        return "no driver runs"

    def look(self) -> None:
        """Read the drivers' events, note which have ended, and start one if none lives."""
        for driver in self.living:
            running = driver.job.running  # asked before its output is read, so that no event is missed
            self._hear(driver)
            if not running:
                driver.end()
                self._judge_end(driver)
        if self._wanted and not self.stuck and not self.living:
            self._start()

    def kill(self, driver: Driver) -> None:
        """Send SIGKILL; `look` replaces the driver."""
        driver.job.kill()
        self._hear(driver)
        driver.end("killed")

    def stop(self) -> None:
        """End all drivers, and start no more."""
        self._wanted = False
        for driver in self.living:
            driver.job.kill()
            driver.end("ended")

    def close(self) -> None:
        """End all drivers and the spare."""
        self.stop()
        self.keep_spare(False)

    def _hear(self, driver: Driver) -> None:
        """Note what the driver has reported since the last call, and pass it on."""
        for event in driver.news():
            before = driver.state
            driver.hear(event)
            if (before, driver.state) == ("starting", "working"):
                self._usual[driver.was_warm] = time.monotonic() - driver.began
            self._told(driver, event)

    def _start(self) -> Driver:
        self.all = self._all_but_the_oldest_gone(1)
        self._count += 1
        start = self._spare.take if self._spare else functools.partial(JobProcess, environment=self._environment)
        spare = self._spare.waiting if self._spare else None
        was_warm = bool(spare and spare.is_warm)
        driver = Driver(self._count, start(**self._options()), was_warm)
        self.all.append(driver)
        return driver

    def _all_but_the_oldest_gone(self, coming: int) -> list[Driver]:
        """Return the drivers without the oldest that have ended, so that `coming` more can be shown."""
        gone = [each for each in self.all if each.gone][: max(0, len(self.all) + coming - DRIVERS_SHOWN)]
        return [each for each in self.all if each not in gone]

    def _judge_end(self, driver: Driver) -> None:
        self._in_vain = 0 if driver.done or driver.state == "fenced" else self._in_vain + 1
        again = [each for each in self.all if each.state == "refused" and not each.done]
        if driver in again and len(again) > 1 and not self.living:
            self.stuck = driver.words
        elif self._in_vain == TOO_MANY:
            self.stuck = f"{TOO_MANY} drivers ended before their first batch; the last one: {driver.words}"


def _last_words(job: JobProcess) -> tuple[str, str]:
    """Return the last state of a driver that the room did not kill, and in one line why it ended."""
    said = job.output()[-LAST:]
    if job.exit_code == -signal.SIGKILL:
        return "killed", "killed by a fault of its own"
    if refused := re.search(r"sink .* refuses batch (\d+)", said):
        found = re.search(r"\n +found: +(.+)", said)
        return "refused", f"refused at batch {refused[1]}" + (f": {found[1].strip()}" if found else "")
    if fenced := re.search(r"batch (\d+): fenced: (.+?)\.", said):
        return "fenced", f"fenced at batch {fenced[1]}: {fenced[2]}"
    last = job.last_line().removeprefix("python -m labs run: ").rpartition("] ")[-1]  # without Spark's error classes
    return "ended", f"ended: {last.partition('. ')[0][:200]}"
