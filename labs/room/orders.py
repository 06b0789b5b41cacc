"""The orders that a room takes: why one is not possible just now, and what each does to the pipeline.

Guarantee: a strike reaches only processes that this room started. An order that takes long releases the room's lock
while it waits, so that the room goes on looking.

A kill may wait for its moment, which is a point of the sink's protocol: the driver freezes itself there, and is then
killed. If its batch has no rows, the driver is woken, and the order waits for the next batch. So a kill with a moment
never comes at another one.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import psutil

from exactly_once_kafka.points import AFTER_COMMIT, BEFORE_COMMIT, MID_ROWS
from labs.room import chronicle
from labs.room.act import Act
from labs.room.drivers import Driver
from labs.room.equipment import OK
from labs.room.session import NotDone, Session
from labs.room.state import MOST_RATE, STAGE_NAMES

# order -> the arguments that it may have
ORDERS: dict[str, tuple[str, ...]] = {
    "start-traffic": (),
    "stop-traffic": (),
    "set-rate": ("rate",),
    "choose-stage": ("stage",),
    "kill-driver": ("driver", "at"),
    "freeze-driver": ("driver",),
    "wake-driver": ("driver",),
    "start-driver": (),
    "keep-spare": ("on",),
    "kill-broker": ("broker",),
    "freeze-broker": ("broker",),
    "wake-broker": ("broker",),
    "start-broker": ("broker",),
    "kill-executor": (),
    "cut-network": (),
    "heal-network": (),
    "hold-commit": (),
    "deliver-commit": (),
    "delete-checkpoint": (),
    "save": ("folder",),
    "finish": (),
}
STRIKES = tuple(each for each in ORDERS if each.partition("-")[0] in ("kill", "freeze", "cut", "hold", "delete"))
AFTER_THE_END = ("choose-stage", "save")  # the orders that are possible after `finish`
BROKER_STATES = {
    "kill-broker": ("running", "frozen"),
    "freeze-broker": ("running",),
    "wake-broker": ("frozen",),
    "start-broker": ("killed",),
}
DRIVER_STATES = {
    "kill-driver": ("starting", "working", "frozen"),
    "freeze-driver": ("starting", "working"),
    "wake-driver": ("frozen",),
}
# argument `at` of kill-driver -> the point of the sink's protocol at which the driver is killed
MOMENTS = {"rows": MID_ROWS, "before": BEFORE_COMMIT, "commit": AFTER_COMMIT}
MOST_DRIVERS = 3


def possible(session: Session) -> list[str]:
    """Return the orders that can be carried out now, with the right arguments."""
    aimed = [f"kill-driver {at}" for at in MOMENTS if not _state_against(session, "kill-driver", {"at": at})]
    return [order for order in ORDERS if not _state_against(session, order, {})] + aimed


def why_not(session: Session, order: str, arguments: Mapping[str, Any]) -> str:
    """Return in one line why an order cannot be carried out, or "" if it can."""
    if order not in ORDERS:
        return f"no order is called {order!r:.40}; there are {', '.join(ORDERS)}"
    if unknown := [name for name in arguments if name not in ORDERS[order]]:
        return f"{order} has no argument {unknown[0]!r:.40}"
    return _arguments_against(session, order, arguments) or _state_against(session, order, arguments)


def rate_against(rate: object) -> str:
    """Return what is wrong with a rate, or ""."""
    if type(rate) in (int, float) and 0 <= rate <= MOST_RATE:  # type: ignore[operator]
        return ""
    return f"a rate of {rate!r:.40} is not possible; expected 0 to {MOST_RATE:,} records a second"


def stage_against(stage: object) -> str:
    """Return what is wrong with a stage, or ""."""
    return "" if stage in STAGE_NAMES else f"no stage is called {stage!r:.40}; there are {', '.join(STAGE_NAMES)}"


def _arguments_against(session: Session, order: str, arguments: Mapping[str, Any]) -> str:
    if order == "set-rate":
        return rate_against(arguments.get("rate"))
    if order == "choose-stage":
        return stage_against(arguments.get("stage"))
    if order == "keep-spare" and type(arguments.get("on")) is not bool:
        return "keep-spare needs on: true or false"
    if order == "save" and not (isinstance(arguments.get("folder"), str) and arguments["folder"].strip()):
        return "save needs the name of a folder"
    broker = arguments.get("broker", 0)
    if type(broker) is not int or not 0 <= broker < session.equipment.nodes:
        return f"there is no broker {broker!r:.40}; there are 0 to {session.equipment.nodes - 1}"
    driver = arguments.get("driver")
    if driver is not None and type(driver) is not int:
        return f"there is no driver {driver!r:.40}"
    if arguments.get("at", "") not in ("", *MOMENTS):
        moments = ", ".join(f'"{each}"' for each in MOMENTS)
        return f"at is {arguments['at']!r:.40}; expected {moments}, or nothing to kill the driver at once"
    return ""


def _state_against(session: Session, order: str, arguments: Mapping[str, Any]) -> str:
    act, network, drivers = session.act, session.network, session.drivers
    if session.over and order not in AFTER_THE_END:
        return f"{order}: the session is over and judged; choose a stage to begin another one"
    if states := BROKER_STATES.get(order):
        nodes = [arguments["broker"]] if "broker" in arguments else range(session.equipment.nodes)
        found = [session.equipment.state(node) for node in nodes]
        return "" if set(found) & set(states) else f"{order}: the broker is {found[0]}"
    if states := DRIVER_STATES.get(order):
        number = arguments.get("driver")
        which = "no driver" if number is None else f"no driver {number}"
        if not drivers.find(number, *states):
            return f"{order}: {which} is {' or '.join(states)}"
        aim = _nothing_to_aim_at(session, arguments.get("at", "")) if order == "kill-driver" else ""
        return f"{order}: {aim}" if aim else ""
    against = {
        "start-traffic": act.traffic.on and "the traffic is on already",
        "stop-traffic": not act.traffic.on and "the traffic is off already",
        "start-driver": len(drivers.living) >= MOST_DRIVERS
        and f"{MOST_DRIVERS} drivers run already, the most there can be",
        "kill-executor": not session.executor_ids and "this room has no executors; open it with executors=2",
        "cut-network": network.is_cut and "the network is cut already",
        "heal-network": not network.is_cut and "it is not cut",
        "hold-commit": _no_commit_to_hold(session),
        "deliver-commit": network.hold != "held" and "no commit is held",
        "delete-checkpoint": _no_checkpoint(session),
        "finish": not act.live.records and "nothing was sent yet: start the traffic",
    }
    return f"{order}: {against[order]}" if against.get(order) else ""


def _nothing_to_aim_at(session: Session, at: str) -> str:
    if at and not session.act.traffic.on:
        return "the traffic is off, so no batch comes to aim at"
    if at in ("before", "commit") and not session.act.has_transactions:
        return "this stage has no transactions, and so no commits"
    return ""


def _no_commit_to_hold(session: Session) -> str:
    if not session.act.has_transactions:
        return "this stage has no transactions, and so no commits"
    if session.equipment.nodes > 1:
        return "it needs a room with one broker, since all clients must come through the proxy"
    return "a commit is held already, or the room waits for one" if session.network.hold else ""


def _no_checkpoint(session: Session) -> str:
    if not session.act.keeps_checkpoint:
        return "this stage keeps no checkpoint"
    return "" if session.act.checkpoint.planned >= 0 else "the checkpoint is still empty"


STEP = 0.005  # seconds between two looks
PATIENCE = 90.0  # seconds until a batch with rows comes
UNDER_WAY = 0.25  # seconds until the log shows what a frozen driver has written


def freeze_at(moment: str, driver: Driver, act: Act, lock: threading.RLock, others: Callable[[], bool]) -> None:
    """Freeze the driver at its moment, in a batch with rows. The caller holds `lock`; it is released between looks.

    Raises NotDone if the moment does not come, and if `others()` is true: then another order waits, which may be the
    one that starts a broker again, without which no batch comes.
    """
    waiting, deadline = threading.Event(), time.monotonic() + PATIENCE
    while True:
        _read(act)
        end = act.log.end
        with driver.job.points.armed(MOMENTS[moment], "freeze") as struck:
            while not (why := _why_in_vain(moment, driver, deadline, others)) and not struck.exists():
                _let_go(lock, waiting, STEP)
        if not struck.exists():
            raise NotDone(f"kill-driver: {why}")
        while driver.job.running and not driver.job.paused:
            _let_go(lock, waiting, STEP)
        _let_go(lock, waiting, UNDER_WAY)
        act.checkpoint.look()
        _read(act)
        batch = act.checkpoint.in_flight
        if any((row.kind, row.batch) == ("row", batch) and row.offset >= end for row in act.log.entries):
            return
        driver.job.resume()


def _why_in_vain(moment: str, driver: Driver, deadline: float, others: Callable[[], bool]) -> str:
    """Return why it is useless to wait longer for the moment, or ""."""
    if others():
        return "given up before its moment came, since another order was given"
    if driver.gone:
        return f"driver {driver.number} ended before its moment came"
    if time.monotonic() > deadline:
        return f"in {PATIENCE:g} s no driver was caught{AIMS[moment]}; try again, or kill it now"
    return ""


def _read(act: Act) -> None:
    with contextlib.suppress(OSError):
        act.read_log({})


def _let_go(lock: threading.RLock, waiting: threading.Event, seconds: float) -> None:
    lock.release()
    try:
        waiting.wait(seconds)
    finally:
        lock.acquire()


AIMS = {
    "": "",
    "rows": " with rows of its batch in the log",
    "before": " before its commit, with all rows of its batch in the log",
    "commit": " after its commit, before the batch is in the checkpoint",
}
BROKER_WORDS = {"kill": "was killed", "freeze": "was frozen", "wake": "was woken", "start": "was started"}


class Orders:
    """Carries out orders on the session while it holds `lock`; the room carries out `finish` and `save`.

    It calls `say` with a line about what an order waits for. `others()` tells whether more orders wait in the queue.
    """

    def __init__(
        self, session: Session, lock: threading.RLock, say: Callable[[str], object], others: Callable[[], bool]
    ):
        self._session, self._lock, self._say, self._others = session, lock, say, others

    def carry_out(self, order: str, arguments: Mapping[str, Any]) -> None:
        """Carry out an order that `why_not` allows. Raises NotDone."""
        verb, _, what = order.partition("-")
        with self._lock:
            if what == "traffic":
                self._session.act.traffic.set(on=verb == "start")
            elif order == "set-rate":
                self._session.act.traffic.set(rate=arguments["rate"])
            elif order == "choose-stage":
                self._choose_stage(arguments["stage"])
            elif order == "keep-spare":
                self._session.drivers.keep_spare(arguments["on"])
            elif what == "broker":
                self._broker(verb, arguments.get("broker"))
            elif order == "start-driver":
                self._start_driver()
            elif order in DRIVER_STATES:
                driver = self._session.drivers.find(arguments.get("driver"), *DRIVER_STATES[order])
                assert driver, "the order is possible only with such a driver"
                self._driver(verb, driver, arguments.get("at", ""))
            elif order == "kill-executor":
                self._kill_executor()
            elif what == "network":
                self._network(verb)
            elif order == "hold-commit":
                self._hold_commit()
            elif order == "deliver-commit":
                self._deliver_commit()
            elif order == "delete-checkpoint":
                self._delete_checkpoint()

    def _choose_stage(self, stage: str) -> None:
        session = self._session
        if not session.equipment.all_are("running"):
            raise NotDone("choose-stage: every broker must run, since the stage makes new topics")
        session.begin_act(stage)
        session.chronicle.note("choose-stage", f"act {session.act.number}: {stage}", stage=stage)

    def _broker(self, verb: str, node: int | None) -> None:
        session, equipment = self._session, self._session.equipment
        if node is None:
            states = BROKER_STATES[f"{verb}-broker"]
            node = next(each for each in range(equipment.nodes) if equipment.state(each) in states)
        number: int = node
        runs = lambda: equipment.state(number) == "running"  # noqa: E731
        outage = verb in ("kill", "freeze")
        look = chronicle.of_an_outage(session.act, session.drivers, runs) if outage else None
        getattr(equipment, verb)(number)
        words = f"broker {number} {BROKER_WORDS[verb]}"
        look = look or chronicle.once(runs, "it answers")
        session.chronicle.note(f"{verb}-broker", words, look, broker=number)

    def _start_driver(self) -> None:
        session = self._session
        driver = session.drivers.start()
        look = chronicle.of_two_drivers(session.act, session.drivers, driver)
        session.chronicle.note("start-driver", f"driver {driver.number} was started", look)

    def _driver(self, verb: str, driver: Driver, at: str) -> None:
        session, act = self._session, self._session.act
        if verb == "kill":
            if at:
                self._say(f"kill-driver: waits for the moment: driver {driver.number}{AIMS[at]}")
                freeze_at(at, driver, act, self._lock, self._others)
                self._say("")
            act.checkpoint.look()
            look = chronicle.after_the_driver(act, driver)
            session.drivers.kill(driver)
            session.chronicle.note("kill-driver", f"driver {driver.number} was killed{AIMS[at]}", look, at=at)
        elif verb == "freeze":
            driver.freeze()
            look = chronicle.of_the_frozen(act, driver)
            session.chronicle.note("freeze-driver", f"driver {driver.number} was frozen", look)
        else:
            look = chronicle.of_the_woken(act, driver)
            driver.wake()
            session.chronicle.note("wake-driver", f"driver {driver.number} was woken", look)

    def _kill_executor(self) -> None:
        session = self._session
        executors = sorted(session.executors(), key=lambda each: each.pid)
        if not executors:
            raise NotDone("kill-executor: no executor runs just now")
        look = chronicle.of_the_executor(executors[0].pid, len(executors), lambda: session.executor_ids)
        with contextlib.suppress(psutil.NoSuchProcess):
            executors[0].kill()
        session.chronicle.note("kill-executor", f"one of {len(executors)} executors was killed", look)

    def _network(self, verb: str) -> None:
        session, network = self._session, self._session.network
        if verb == "cut":
            look = chronicle.of_an_outage(session.act, session.drivers, lambda: not network.is_cut)
            network.cut()
            session.chronicle.note("cut-network", "nothing passes between the clients and the broker", look)
        else:
            network.heal()
            noted = session.act.checkpoint.noted
            look = chronicle.once(lambda: session.act.checkpoint.noted > noted, "a batch is in the checkpoint")
            session.chronicle.note("heal-network", "the network passes data again", look)

    def _hold_commit(self) -> None:
        session, network = self._session, self._session.network
        network.hold_commit()
        look = chronicle.of_the_held(session.act, lambda: network.held_epoch)
        session.chronicle.note("hold-commit", "the next commit is kept back, and its driver cut off", look)

    def _deliver_commit(self) -> None:
        network, log = self._session.network, self._session.act.log
        epoch = network.held_epoch
        self._lock.release()
        try:
            said = network.deliver()
        except (OSError, TimeoutError) as error:
            said = f"not delivered: {error}"
        finally:
            self._lock.acquire()
        if said == OK:
            done = any((each.epoch, each.state) == (epoch, "committed") for each in log.ended)
            said += ": its transaction is committed already, once" if done else ""
        self._session.chronicle.note("deliver-commit", f"the commit of epoch {epoch} arrives late", said)

    def _delete_checkpoint(self) -> None:
        session = self._session
        look = chronicle.of_the_deleted(session.act, session.drivers)
        for driver in session.drivers.living:
            session.drivers.kill(driver)
        session.act.checkpoint.forget()
        session.act.begin_anew()
        session.chronicle.note("delete-checkpoint", "the driver was stopped and its checkpoint deleted", look)
