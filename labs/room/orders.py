"""What an order does to the pipeline. `labs.room.possible` has said that it can be done now.

Guarantee: a strike reaches only processes that this room started. What takes long waits outside of the room's lock, so
that the room goes on looking.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from typing import Any

import psutil

from labs.room import consequences
from labs.room.drivers import Driver
from labs.room.moment import freeze_at
from labs.room.network import OK
from labs.room.possible import BROKER_STATES, DRIVER_STATES, NotDone
from labs.room.session import Session

BROKER_WORDS = {"kill": "was killed", "freeze": "was frozen", "wake": "was woken", "start": "was started"}


class Orders:
    """Carries out orders on the session while holding `lock`; all but the end of it, which is the room's."""

    def __init__(self, session: Session, lock: threading.RLock):
        self._session, self._lock = session, lock

    def carry_out(self, order: str, arguments: Mapping[str, Any]) -> None:
        """Do it. Raises NotDone."""
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
                assert driver, "the order is possible only then"
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
        look = consequences.of_an_outage(session.act, session.drivers, runs) if outage else None
        getattr(equipment, verb)(number)
        words = f"broker {number} {BROKER_WORDS[verb]}"
        look = look or consequences.once(runs, "it answers")
        session.chronicle.note(f"{verb}-broker", words, look, broker=number)

    def _start_driver(self) -> None:
        session = self._session
        driver = session.drivers.start()
        look = consequences.of_two_drivers(session.act, session.drivers, driver)
        session.chronicle.note("start-driver", f"driver {driver.number} was started", look)

    def _driver(self, verb: str, driver: Driver, at: str) -> None:
        session, act = self._session, self._session.act
        if verb == "kill":
            if at:
                freeze_at(at, driver, act, self._lock)
            act.checkpoint.look()
            look = consequences.after_the_driver(act, driver)
            session.drivers.kill(driver)
            session.chronicle.note("kill-driver", f"driver {driver.number} was killed{_when(at)}", look, at=at)
        elif verb == "freeze":
            driver.freeze()
            look = consequences.of_the_frozen(act, driver)
            session.chronicle.note("freeze-driver", f"driver {driver.number} was frozen", look)
        else:
            look = consequences.of_the_woken(act, driver)
            driver.wake()
            session.chronicle.note("wake-driver", f"driver {driver.number} was woken", look)

    def _kill_executor(self) -> None:
        session = self._session
        executors = sorted(session.executors(), key=lambda each: each.pid)
        if not executors:
            raise NotDone("kill-executor: there is none just now")
        look = consequences.of_the_executor(executors[0].pid, len(executors), lambda: session.executor_ids)
        with contextlib.suppress(psutil.NoSuchProcess):
            executors[0].kill()
        session.chronicle.note("kill-executor", f"one of {len(executors)} executors was killed", look)

    def _network(self, verb: str) -> None:
        session, network = self._session, self._session.network
        if verb == "cut":
            look = consequences.of_an_outage(session.act, session.drivers, lambda: not network.is_cut)
            network.cut()
            session.chronicle.note("cut-network", "nothing passes between the clients and the broker", look)
        else:
            network.heal()
            noted = session.act.checkpoint.noted
            look = consequences.once(lambda: session.act.checkpoint.noted > noted, "a batch is noted")
            session.chronicle.note("heal-network", "the network is whole again", look)

    def _hold_commit(self) -> None:
        session, network = self._session, self._session.network
        network.hold_commit()
        look = consequences.of_the_held(session.act, lambda: network.held_epoch)
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
        look = consequences.of_the_deleted(session.act, session.drivers)
        for driver in session.drivers.living:
            session.drivers.kill(driver)
        session.act.checkpoint.forget()
        session.act.begin_anew()
        session.chronicle.note("delete-checkpoint", "the driver was stopped and its checkpoint deleted", look)


def _when(at: str) -> str:
    return {"": "", "rows": " with rows of its batch in the log", "commit": " behind its commit"}[at]
