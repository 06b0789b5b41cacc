"""What came of a strike, found in what was seen since: batches begun, transactions ended, copies, last words.

Each function is called at the moment of the strike and returns what is asked from then on, in words or "".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from labs.room.act import Act
from labs.room.batches import WatchedCheckpoint
from labs.room.chronicle import MORE, Consequence
from labs.room.drivers import Driver, Drivers


def after_the_driver(act: Act, driver: Driver) -> Consequence:
    """A driver is gone: what became of the batch that it was at, and of those who come after it."""
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
            return f"driver {who} went on with batch {first}"
        said = f"batch {batch} repeated by driver {who}"
        states = [each.state for each in act.log.ended if each.number > ended and each.batch == batch]
        if "aborted" in states:
            said += ", its first transaction aborted"
        elif act.has_marker and rows and checkpoint.noted >= first:
            said += ", and not written again: the marker says it is there"
        return said + _doubled(again[batch])

    return look


def of_the_frozen(act: Act, driver: Driver) -> Consequence:
    """A driver is frozen: its transaction may be given up, and a successor may take over."""
    ended, begun_since = act.log.last_ended, _begun_by_others(act.checkpoint, driver)

    def look() -> str:
        said = [
            f"its transaction of batch {each.batch} {each.state}"
            for each in act.log.ended
            if each.number > ended and each.epoch == driver.epoch
        ]
        said += [f"driver {who} took over at batch {batch}" for batch, who in begun_since()[:1]]
        if driver.state != "frozen" and not said:
            return "nothing of it was open, and nobody took over"
        return "; ".join(said) if driver.state == "frozen" else ""

    return look


def of_the_woken(act: Act, driver: Driver) -> Consequence:
    """A driver goes on where it was: it may find that its time is over."""
    done, batch = driver.done, driver.batch

    def look() -> str:
        if driver.gone:
            return driver.words or driver.state
        if driver.done > done:
            return f"went on with batch {driver.batch if batch is None else batch}"
        return ""

    return look


def of_two_drivers(act: Act, drivers: Drivers, newcomer: Driver) -> Consequence:
    """Two drivers at once: which of them is gone, and why; or what both have done."""
    copies = act.log.copies.total()
    before = [each for each in drivers.living if each is not newcomer]

    def look() -> str:
        by_itself = [each for each in [*before, newcomer] if each.gone and each.state != "killed"]
        gone = [f"driver {each.number} {each.words or each.state}" for each in by_itself]
        if gone or not newcomer.done:
            return "; ".join(gone)
        doubled = act.log.copies.total() - copies
        return f"both go on{_doubled(doubled)}" if before and doubled else "" if before else "works beside no other"

    return look


def of_an_outage(act: Act, drivers: Drivers, over: Callable[[], bool]) -> Consequence:
    """Kafka was away until `over`: how long nothing was noted, and what became of the drivers meanwhile."""
    began = time.monotonic()
    at_work = [each for each in drivers.living if each.state == "working"]
    noted: list[int] = []
    said: list[str] = []

    def look() -> str:
        lost = "".join(f"; driver {each.number} {each.words or each.state}" for each in at_work if each.gone)
        if not said and over():
            if not noted:
                noted.append(act.checkpoint.noted)
            if act.checkpoint.noted > noted[0]:
                said.append(f"batches are noted again after {time.monotonic() - began:.0f} s{lost}")
        return "".join(said) or (lost.removeprefix("; ") + MORE if lost else "")

    return look


def of_the_held(act: Act, held_epoch: Callable[[], int | None]) -> Consequence:
    """A commit is kept back: its client was cut off and asks again."""
    seen: dict[str, int] = {}

    def look() -> str:
        epoch = held_epoch()
        if epoch is not None and "epoch" not in seen:
            seen.update(epoch=epoch, noted=act.checkpoint.noted)
        if "epoch" not in seen:
            return ""
        said = f"the commit of epoch {seen['epoch']} is on its way"
        if act.checkpoint.noted > seen["noted"]:
            said += f"; its driver asked again, and batch {seen['noted'] + 1} is noted"
        return said

    return look


def of_the_deleted(act: Act, drivers: Drivers) -> Consequence:
    """The checkpoint is gone: who comes next begins anew, or is refused."""
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
    """An executor is gone: Spark starts another."""

    def look() -> str:
        replaced = killed not in running() and len(running()) >= wanted
        return "Spark started another one; the driver lives" if replaced else ""

    return look


def once(over: Callable[[], bool], words: str) -> Consequence:
    """Say it, with the time it took, as soon as it is so."""
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
    """Return what returns the batches that other drivers have begun from now on, each with its driver."""
    known = {batch: len(drivers) for batch, drivers in checkpoint.begun.items()}
    return lambda: [
        (batch, who)
        for batch, drivers in sorted(checkpoint.begun.items())
        for who in drivers[known.get(batch, 0) :]
        if who != driver.number
    ]
