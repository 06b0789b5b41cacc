"""The operations room: the real pipeline while it runs, to look into and to strike by hand.

    with Room() as room:
        room.do("start-traffic")
        room.wait(lambda state: state["verdict"]["delivered"] >= 40)
        room.do("kill-driver")
        assert room.finish().valid

The room has no widget: a view subscribes to its changes. Guarantee: orders are carried out one after another, and an
impossible one leaves a line in the state's `message`. After `close` no process, port, thread or file of the room is
left; at the end of this process `close` is called. Limitations: after a SIGKILL of this process its children end
within a second or two.
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import json
import os
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from labs.evidence.auditor.audit import Audit
from labs.room.orders import Orders, possible, rate_against, stage_against, why_not
from labs.room.recording import PLAYED, FolderError, Recorder, save
from labs.room.session import Ending, NotDone, Session
from labs.room.state import State, changes
from labs.runs.staircase import EXACTLY_ONCE

LOOK = 0.1  # seconds between two looks
ONLY_TIME = 1.0  # seconds after which subscribers are told even if only the time has changed
MOST_NODES, MOST_EXECUTORS = 5, 4

Subscriber = Callable[[State], object]


class RoomError(RuntimeError):
    """The room cannot be opened with these options, or cannot carry out an order."""


class Room:
    """Opens a room with `nodes` brokers and a driver that runs `stage` with `executors` executor processes.

    The traffic is off at first; `rate` is in records per second. With `spare` a driver is kept warm, to take over when
    the first dies. Raises RoomError, BrokerError, OSError.
    """

    def __init__(
        self,
        stage: str = EXACTLY_ONCE.name,
        nodes: int = 1,
        executors: int = 0,
        rate: float = 40,
        spare: bool = True,
        seed: int = 7,
    ):
        check_options(stage, nodes, executors, rate)
        self.audit: Audit | None = None
        self._lock, self._looked = threading.RLock(), threading.Condition()
        self._closing, self._closed = threading.Event(), False
        self._message, self._looks = "", 0
        self._subscribers: list[Subscriber] = []
        self._orders: queue.SimpleQueue[tuple[str, dict[str, Any], Future[str]] | None] = queue.SimpleQueue()
        self._session = Session(stage, nodes, executors, rate, spare, seed)
        try:
            atexit.register(self.close)
            self._state = self._seen()
            self._recorder = Recorder(self._state)
            self._subscribers.append(self._recorder.record)
            self._hands = Orders(self._session, self._lock, self._say, lambda: not self._orders.empty())
            threads = {"room-looks": self._look, "room-orders": self._carry_out}
            self._threads = [threading.Thread(target=run, name=name, daemon=True) for name, run in threads.items()]
            for thread in self._threads:
                thread.start()
        except BaseException:
            self.close()
            raise

    @property
    def state(self) -> State:
        """The state at the last look: see `labs.room.state`."""
        return copy.deepcopy(self._state)

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call `subscriber` with changes, in the room's thread, at most ten times a second; return `unsubscribe`."""
        self._subscribers.append(subscriber)

        def unsubscribe() -> None:
            with contextlib.suppress(ValueError):
                self._subscribers.remove(subscriber)

        return unsubscribe

    def do(self, order: str, **arguments: Any) -> Future[str]:
        """Give an order. The future's result is a line that says why it was not carried out, or ""."""
        done: Future[str] = Future()
        if self._closing.is_set():
            done.set_result("the room is closed")
        else:
            self._orders.put((order, arguments, done))
        return done

    def wait(self, condition: Callable[[State], object], timeout: float = 60) -> State:
        """Wait until the state meets the condition, and return it. Raises TimeoutError, with the last state."""
        deadline = time.monotonic() + timeout
        with self._looked:
            while not condition(self._state):
                left = deadline - time.monotonic()
                if left <= 0 or self._closing.is_set():
                    why = "the room was closed" if self._closing.is_set() else f"not so after {timeout:g} s"
                    raise TimeoutError(f"{why}; the state is {_in_short(self._state)}")
                self._looked.wait(min(left, 1.0))
            return self.state

    def finish(self) -> Audit:
        """Stop the traffic, wait until every result is decided, and return the audit. Raises RoomError."""
        said = self.do("finish").result()
        if said or self.audit is None:
            raise RoomError(said or "finish: nothing was judged")
        return self.audit

    def save(self, name: str | Path) -> Path:
        """Write recording, audit and strikes into a folder, and return it. Raises RoomError."""
        if said := self.do("save", folder=str(name)).result():
            raise RoomError(said)
        return Path(name).expanduser()

    def close(self) -> None:
        """End everything, and leave nothing behind. Idempotent."""
        self._closing.set()
        self._orders.put(None)
        for thread in getattr(self, "_threads", ()):
            if thread is not threading.current_thread() and thread.ident:
                thread.join(30)
        with self._lock:
            if not self._closed:
                self._session.close()
                self._closed = True  # only now: whoever was interrupted closes once more
        self._refuse_the_rest()
        atexit.unregister(self.close)

    def __enter__(self) -> Room:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _look(self) -> None:
        told = 0.0
        while not self._closing.wait(LOOK):
            try:
                with self._lock:
                    new = self._seen()
            except Exception as error:  # whatever failed, the room goes on looking, and shows the error until it can
                failed = f"the room cannot read its own state: {type(error).__name__}: {error}"
                new = {**self._state, "message": failed}
            changed = changes(self._state, new)
            with self._looked:
                self._looks += 1
                self._state = new
                self._looked.notify_all()
            if changed.keys() <= {"time"} and time.monotonic() - told < ONLY_TIME:
                continue
            told = time.monotonic()
            for subscriber in list(self._subscribers):
                self._tell(subscriber, changed)

    def _seen(self) -> State:
        return {**self._session.look(), "possible": possible(self._session), "message": self._line()}

    def _tell(self, subscriber: Subscriber, changed: State) -> None:
        """Tell one subscriber. If it raises, it is removed, and the others are still told."""
        try:
            subscriber(changed)
        except Exception as error:
            with contextlib.suppress(ValueError):  # it has unsubscribed meanwhile
                self._subscribers.remove(subscriber)
            self._message = f"a view was removed, since it failed: {type(error).__name__}: {error}"

    def _line(self) -> str:
        return self._message or self._session.equipment.trouble or self._session.drivers.stuck or self._session.trouble

    def _carry_out(self) -> None:
        while (asked := self._orders.get()) is not None:
            order, arguments, done = asked
            if self._message:
                self._message = ""
                self._wait_for_look()  # so that a view shows the same message again, after it was dismissed
            try:
                said = self._done(order, arguments)
            except Exception as error:
                said = f"{order} failed: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
            self._message = said or self._message
            self._wait_for_look()
            done.set_result(said)
        self._refuse_the_rest()

    def _refuse_the_rest(self) -> None:
        """Answer the orders that are left in the queue, since callers may wait for them."""
        with contextlib.suppress(queue.Empty):
            while True:
                if rest := self._orders.get_nowait():
                    rest[2].set_result("the room is closed")

    def _wait_for_look(self) -> None:
        """Wait until the state shows the effect of an order."""
        with self._looked:
            looks = self._looks
            self._looked.wait_for(lambda: self._looks >= looks + 2 or self._closing.is_set(), 5.0)

    def _done(self, order: str, arguments: dict[str, Any]) -> str:
        with self._lock:
            if against := why_not(self._session, order, arguments):
                return against
        try:
            if order == "finish":
                self.audit = Ending(self._session, self._lock, self._closing, self._say).judge()
            elif order == "save":
                recording = self._recorder.recording(f"The operations room: {self._state['stage']['name']}")
                audit = self.audit if self._session.over else None
                folder = save(arguments["folder"], recording, self._session.chronicle.as_schedule(), audit)
                self._say(f"the recording is saved in {folder}; {PLAYED} there plays it in any browser")
            else:
                self._hands.carry_out(order, arguments)
        except (NotDone, FolderError) as error:
            return str(error)
        return ""

    def _say(self, line: str) -> None:
        self._message = line


def check_options(stage: str, nodes: int, executors: int, rate: float) -> None:
    """Raise RoomError for options with which no room can be opened."""
    against = stage_against(stage) or rate_against(rate)
    if type(nodes) is not int or not 1 <= nodes <= MOST_NODES:
        against = f"nodes is {nodes!r:.40}; expected 1 to {MOST_NODES}"
    if type(executors) is not int or not 0 <= executors <= MOST_EXECUTORS:
        against = f"executors is {executors!r:.40}; expected 0 to {MOST_EXECUTORS}"
    if named := os.environ.get("KAFKA_BOOTSTRAP_SERVERS"):
        against = (
            f"KAFKA_BOOTSTRAP_SERVERS names a Kafka that the lab did not start ({named}), and the room strikes only "
            "its own Kafka; unset the variable"
        )
    if against:
        raise RoomError(f"the room cannot be opened: {against}")


def _in_short(state: State) -> str:
    names = ("time", "traffic", "counted", "drivers", "brokers", "network", "verdict", "message")
    return json.dumps({name: state[name] for name in names})
