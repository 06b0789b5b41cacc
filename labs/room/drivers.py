"""The room's drivers: job processes that are started, killed, frozen, and replaced as soon as one is gone.

Guarantee: only processes that were started here are ever signalled, and none outlives `close`. A driver that is frozen
is not replaced: it may wake up, and who wants a second one starts it. When the sink has refused two in a row, no third
is started: it would be refused too.
"""

from __future__ import annotations

import contextlib
import functools
import re
import signal
from collections.abc import Callable, Mapping
from typing import Any

from labs.faults.job import JobProcess, events_in
from labs.faults.spare import HotSpare
from labs.room.state import DRIVERS

STATES = ("warm", "starting", "working", "frozen", "killed", "fenced", "refused", "ended")
GONE = ("killed", "fenced", "refused", "ended")
TOO_MANY = 3  # drivers in a row that end by themselves before their first batch
LAST = 20_000  # characters of what a driver has printed, for why it ended

Options = Callable[[], Mapping[str, Any]]


class Driver:
    """One job process: what it has told, and when it is gone, why."""

    def __init__(self, number: int, job: JobProcess):
        self.number, self.job = number, job
        self.state = "starting"
        self.batch: int | None = None  # that it began last
        self.epoch: int | None = None
        self.done = 0  # batches
        self.words = ""  # why it ended
        self._position = 0

    @property
    def gone(self) -> bool:
        return self.state in GONE

    def news(self) -> list[dict[str, Any]]:
        """Return what it has told since it was last asked."""
        with contextlib.suppress(OSError), self.job.log_file.open("rb") as log:
            log.seek(self._position)
            printed = log.read()
            whole = printed[: printed.rfind(b"\n") + 1]
            self._position += len(whole)
            return events_in(whole.decode(errors="replace"))
        return []

    def hear(self, event: Mapping[str, Any]) -> None:
        """Take note of what it told."""
        if event["event"] in ("begins", "done") and self.state == "starting":
            self.state = "working"
        if event["event"] == "begins":
            self.batch = event["batch"]
        self.done += event["event"] == "done"

    def freeze(self) -> None:
        """SIGSTOP it."""
        self.job.pause()
        self.state = "frozen"

    def wake(self) -> None:
        """SIGCONT it: it goes on where it was."""
        self.job.resume()
        self.state = "working" if self.batch is not None else "starting"

    def end(self, state: str = "") -> None:
        """Take note that it is gone, in its own last words unless it was killed, and tidy up behind it."""
        if not state:
            state, self.words = _last_words(self.job)
        self.state = state
        self.job.close()

    def shown(self) -> dict[str, Any]:
        return {"number": self.number, "state": self.state, "batch": self.batch, "epoch": self.epoch}


class Drivers:
    """Starts drivers with `options()` in `environment`; `told(driver, event)` hears what each says."""

    def __init__(
        self, options: Options, told: Callable[[Driver, Mapping[str, Any]], object], environment: Mapping[str, str]
    ):
        self.stuck = ""  # why no driver is started any more
        self.all: list[Driver] = []  # the last ones; who lives is among them
        self._options, self._told, self._environment = options, told, environment
        self._spare: HotSpare | None = None
        self._count = self._in_vain = 0
        self._wanted = False

    @property
    def living(self) -> list[Driver]:
        return [driver for driver in self.all if not driver.gone]

    @property
    def spare_wanted(self) -> bool:
        return self._spare is not None

    def find(self, number: int | None, *states: str) -> Driver | None:
        """Return the driver of this number, or the newest, if it is in one of the states."""
        found = [each for each in self.all if each.state in states and number in (None, each.number)]
        return found[-1] if found else None

    def start(self) -> Driver:
        """Start one more, cold."""
        self._wanted, self.stuck, self._in_vain = True, "", 0
        return self._start()

    def keep_spare(self, on: bool) -> None:
        """Keep a hot spare from now on, or none."""
        if on and self._spare is None:
            self._spare = HotSpare(self._environment)
        elif not on and self._spare:
            self._spare.close()
            self._spare = None

    def shown(self) -> list[dict[str, Any]]:
        """Return the drivers of the room's state: those that were started, and the spare that waits."""
        spare = self._spare.waiting if self._spare else None
        shown = [driver.shown() for driver in self._all_but_the_oldest_gone(1 if spare else 0)]
        if spare:
            state = "warm" if spare.is_warm else "starting"
            shown.append({"number": self._count + 1, "state": state, "batch": None, "epoch": None})
        return shown

    def look(self) -> None:
        """Hear what the drivers tell, note which are gone, and replace the last one that was."""
        for driver in self.living:
            running = driver.job.running  # before its last words are read
            for event in driver.news():
                driver.hear(event)
                self._told(driver, event)
            if not running:
                driver.end()
                self._judge_end(driver)
        if self._wanted and not self.stuck and not self.living:
            self._start()

    def kill(self, driver: Driver) -> None:
        """SIGKILL it; `look` replaces it."""
        driver.job.kill()
        driver.end("killed")

    def stop(self) -> None:
        """End all, and start no more."""
        self._wanted = False
        for driver in self.living:
            driver.job.kill()
            driver.end("ended")

    def close(self) -> None:
        """End all, and the spare."""
        self.stop()
        self.keep_spare(False)

    def _start(self) -> Driver:
        self.all = self._all_but_the_oldest_gone(1)
        self._count += 1
        start = self._spare.take if self._spare else functools.partial(JobProcess, environment=self._environment)
        driver = Driver(self._count, start(**self._options()))
        self.all.append(driver)
        return driver

    def _all_but_the_oldest_gone(self, coming: int) -> list[Driver]:
        """Return the drivers with room for `coming` more among those that are shown; nobody who lives is left out."""
        gone = [each for each in self.all if each.gone][: max(0, len(self.all) + coming - DRIVERS)]
        return [each for each in self.all if each not in gone]

    def _judge_end(self, driver: Driver) -> None:
        self._in_vain = 0 if driver.done or driver.state == "fenced" else self._in_vain + 1
        again = [each for each in self.all if each.state == "refused" and not each.done]
        if driver in again and len(again) > 1 and not self.living:
            self.stuck = driver.words
        elif self._in_vain == TOO_MANY:
            self.stuck = f"{TOO_MANY} drivers ended before their first batch; the last one: {driver.words}"


def _last_words(job: JobProcess) -> tuple[str, str]:
    """Return how a driver ended that was not killed by the room, and why, in one line."""
    said = job.output()[-LAST:]
    if job.exit_code == -signal.SIGKILL:
        return "killed", "killed by a fault of its own"
    if refused := re.search(r"sink .* refuses batch (\d+)", said):
        found = re.search(r"\n +found: +(.+)", said)
        return "refused", f"refused at batch {refused[1]}" + (f": {found[1].strip()}" if found else "")
    if fenced := re.search(r"batch (\d+): fenced: (.+?)\.", said):
        return "fenced", f"fenced at batch {fenced[1]}: {fenced[2]}"
    last = job.last_line().removeprefix("python -m labs run: ").rpartition("] ")[-1]  # less Spark's error classes
    return "ended", f"ended: {last.partition('. ')[0][:200]}"
