"""The chronicle: what was done to the pipeline, when, and what followed from it, in words.

A `Consequence` is a function that returns in words what followed from a strike, or "" as long as nothing is known. It
uses what the room has seen since the strike: batches begun, transactions ended, copies, and why drivers ended. The
chronicle calls it at each look until its words no longer end in MORE, and for SECOND_PART seconds more, since some
consequences have a second part. The consequence of the newest strike is called at every look.

`after_the_driver` and the functions below it are called at the moment of a strike. Each returns the strike's
consequence; its docstring says what happens, and what the consequence can be.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from labs.room.act import Act, WatchedCheckpoint
from labs.room.drivers import Driver, Drivers
from labs.room.state import STRIKES_SHOWN

Consequence = Callable[[], str]
SECOND_PART = 8.0  # seconds
MORE = " …"
NOTHING_SHOWN = "nothing had shown when the act ended"


@dataclass
class Entry:
    """One strike; `arguments` are those of its order."""

    number: int
    time: float
    strike: str
    words: str
    arguments: dict[str, Any]
    consequence: str = ""
    look: Consequence | None = None
    shown_at: float | None = None

    def shown(self) -> dict[str, Any]:
        names = ("number", "time", "strike", "words", "consequence")
        return {name: getattr(self, name) for name in names}


class Chronicle:
    """The strikes of a session. The last STRIKES_SHOWN are shown, and their consequences looked for."""

    def __init__(self, now: Callable[[], float]):
        self.all: deque[Entry] = deque(maxlen=1_000)
        self._now = now
        self._count = 0

    def note(self, strike: str, words: str, look: Consequence | str = "", **arguments: Any) -> Entry:
        """Add a strike; `look` is its consequence, in words or as a function."""
        self._count += 1
        entry = Entry(self._count, round(self._now(), 1), strike, words, arguments)
        if isinstance(look, str):
            entry.consequence = look
        else:
            entry.look = look
        self.all.append(entry)
        return entry

    def look(self) -> None:
        """Look for the consequences of the last strikes."""
        for entry in list(self.all)[-STRIKES_SHOWN:]:
            if entry.look is None:
                continue
            entry.consequence = entry.look() or entry.consequence
            if entry.consequence and not entry.consequence.endswith(MORE) and entry.shown_at is None:
                entry.shown_at = time.monotonic()
            alone = entry is self.all[-1]  # then everything that is seen is its consequence, however late
            if not alone and entry.shown_at is not None and time.monotonic() - entry.shown_at > SECOND_PART:
                entry.look = None

    def end_act(self) -> None:
        """Stop looking: later events are not consequences of these strikes. A strike without one gets NOTHING_SHOWN."""
        for entry in self.all:
            if entry.look is not None:
                entry.consequence = entry.consequence.removesuffix(MORE) or NOTHING_SHOWN
            entry.look = None

    def as_schedule(self) -> list[dict[str, Any]]:
        """Return all strikes in their order: [{"time", "do", and the order's arguments}]."""
        return [
            {"time": each.time, "do": each.strike}
            | {name: value for name, value in each.arguments.items() if value != ""}
            for each in self.all
        ]

    def shown(self) -> list[dict[str, Any]]:
        """Return `chronicle` of the room's state."""
        return [entry.shown() for entry in list(self.all)[-STRIKES_SHOWN:]]


def after_the_driver(act: Act, driver: Driver) -> Consequence:
    """A driver has ended: what became of its batch, and which driver went on."""
    checkpoint, copies, ended = act.checkpoint, act.log.copies.copy(), act.log.last_ended
    batch, begun_since = checkpoint.in_flight, _begun_by_others(checkpoint, driver)
    rows = [row for row in act.log.entries if row.kind == "row" and row.batch == batch and row.state != "aborted"]

    def look() -> str:
        again = act.log.copies - copies
        if act.checkpoint is not checkpoint:
            who = max(act.checkpoint.begun.get(0, [0]))
            return f"driver {who} began again at the first record{_doubled(again.total())}" if who else ""
        begun = begun_since()
        if not begun:
            return ""
        first, who = begun[0]
        if first != batch:
            return f"driver {who} continued with batch {first}"
        said = f"batch {batch} repeated by driver {who}"
        states = [each.state for each in act.log.ended if each.number > ended and each.batch == batch]
        if "aborted" in states:
            said += ", its first transaction aborted"
        elif act.has_marker and rows and checkpoint.noted >= first:
            said += ", and not written again: the marker says it is there"
        return said + _doubled(again[batch])

    return look


def of_the_frozen(act: Act, driver: Driver) -> Consequence:
    """A driver is frozen: Kafka may abort its transaction, and another driver may take over."""
    ended, begun_since = act.log.last_ended, _begun_by_others(act.checkpoint, driver)

    def look() -> str:
        said = [
            f"its transaction of batch {each.batch} {each.state}"
            for each in act.log.ended
            if each.number > ended and each.epoch == driver.epoch
        ]
        said += [f"driver {who} took over at batch {batch}" for batch, who in begun_since()[:1]]
        if driver.state != "frozen" and not said:
            return "it had no open transaction, and no driver took over"
        return "; ".join(said) if driver.state == "frozen" else ""

    return look


def of_the_woken(act: Act, driver: Driver) -> Consequence:
    """A driver continues where it was: it may find that it is fenced."""
    done, batch = driver.done, driver.batch

    def look() -> str:
        if driver.gone:
            return driver.words or driver.state
        if driver.done > done:
            return f"continued with batch {driver.batch if batch is None else batch}"
        return ""

    return look


def of_two_drivers(act: Act, drivers: Drivers, newcomer: Driver) -> Consequence:
    """Two drivers at once: which of them ended, and why; or what both have done."""
    copies = act.log.copies.total()
    before = [each for each in drivers.living if each is not newcomer]

    def look() -> str:
        by_itself = [each for each in [*before, newcomer] if each.gone and each.state != "killed"]
        gone = [f"driver {each.number} {each.words or each.state}" for each in by_itself]
        if gone or not newcomer.done:
            return "; ".join(gone)
        doubled = act.log.copies.total() - copies
        if not before:
            return "no other driver was running"
        return f"both continue{_doubled(doubled)}" if doubled else ""

    return look


def of_an_outage(act: Act, drivers: Drivers, over: Callable[[], bool]) -> Consequence:
    """Kafka cannot be reached until `over()`: how long no batch was noted, and which drivers ended meanwhile."""
    act.checkpoint.look()
    began, before = time.monotonic(), act.checkpoint.noted
    at_work = [each for each in drivers.living if each.state == "working"]
    noted: list[int] = []
    said: list[str] = []

    def look() -> str:
        lost = "".join(f"; driver {each.number} {each.words or each.state}" for each in at_work if each.gone)
        goes_on = (
            act.checkpoint.noted > before + 1
        )  # a cluster does without one of its brokers; one batch was on its way
        if not noted and over():
            noted.append(act.checkpoint.noted)
        if not said and (goes_on or (noted and act.checkpoint.noted > noted[0])):
            said.append(f"batches are in the checkpoint again after {time.monotonic() - began:.0f} s{lost}")
        return "".join(said) or (lost.removeprefix("; ") + MORE if lost else "")

    return look


def of_the_held(act: Act, held_epoch: Callable[[], int | None]) -> Consequence:
    """A commit is held: its client was cut off and sends it again."""
    seen: dict[str, int] = {}

    def look() -> str:
        epoch = held_epoch()
        if epoch is not None and "epoch" not in seen:
            seen.update(epoch=epoch, noted=act.checkpoint.noted)
        if "epoch" not in seen:
            return ""
        said = f"the commit of epoch {seen['epoch']} is on its way"
        if act.checkpoint.noted > seen["noted"]:
            said += f"; its driver asked again, and batch {seen['noted'] + 1} is in the checkpoint"
        return said

    return look


def of_the_deleted(act: Act, drivers: Drivers) -> Consequence:
    """The checkpoint is deleted: the next driver begins at the first record, or the sink refuses it."""
    known, copies = {driver.number for driver in drivers.all}, act.log.copies.total()

    def look() -> str:
        if drivers.stuck:
            return drivers.stuck
        comers = [driver for driver in drivers.all if driver.number not in known and driver.batch is not None]
        again = act.log.copies.total() - copies
        if not comers or not again:
            return ""
        return f"driver {comers[0].number} began again at the first record{_doubled(again)}"

    return look


def of_the_executor(killed: int, wanted: int, running: Callable[[], Collection[int]]) -> Consequence:
    """An executor was killed: Spark starts another one."""

    def look() -> str:
        replaced = killed not in running() and len(running()) >= wanted
        return "Spark started another one; the driver continued" if replaced else ""

    return look


def once(over: Callable[[], bool], words: str) -> Consequence:
    """Return `words` with the seconds that it took until `over()` was true."""
    began = time.monotonic()
    took: list[float] = []

    def look() -> str:
        if over() and not took:
            took.append(time.monotonic() - began)
        return f"{words} after {took[0]:.1f} s" if took else ""

    return look


def _doubled(results: int) -> str:
    return f", {results:,} results doubled" if results else ""


def _begun_by_others(checkpoint: WatchedCheckpoint, driver: Driver) -> Callable[[], list[tuple[int, int]]]:
    """Return a function that returns the (batch, driver) pairs that other drivers have begun from now on."""
    known = {batch: len(drivers) for batch, drivers in checkpoint.begun.items()}
    return lambda: [
        (batch, who)
        for batch, drivers in sorted(checkpoint.begun.items())
        for who in drivers[known.get(batch, 0) :]
        if who != driver.number
    ]
