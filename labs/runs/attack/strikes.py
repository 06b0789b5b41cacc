"""What orders do to drivers, to Kafka and to the checkpoint, and the supervisor's answer to it."""

from __future__ import annotations

from labs.runs.attack.orders import Order
from labs.runs.attack.watch import Watch
from labs.schedules.replay.bench import CannotPlay
from labs.schedules.replay.played_driver import Step
from labs.schedules.schedule import Event


class Turns:
    """The drivers, in the order in which they were started or woken: the last one acts, if it can."""

    def __init__(self, watch: Watch):
        self._watch, self._player = watch, watch.player
        self._names = ["driver 1"]

    def next(self) -> tuple[str, Step] | None:
        """Return whose turn it is and the step that is about to be taken; None if nobody can take one."""
        for name in reversed(self._names):
            step = self._player.upcoming(name)
            if step and step.action != "end":
                return name, step
        return None

    def start(self, action: str) -> None:
        """Freeze all drivers and start the next one, from the checkpoint; or kill them and start from an older one."""
        name = f"driver {len(self._player.drivers) + 1}"
        batch = self._player.checkpoint.noted + 1 if action == "start" else None
        self._watch.step(Event("supervisor", action, batch, whose=name))
        self._names.append(name)

    def wake(self, name: str) -> None:
        """Wake a driver that is frozen, and let it be the one that acts."""
        self._watch.step(Event(name, "wake"))
        self._names.remove(name)
        self._names.append(name)


def strike(order: Order, watch: Watch, turns: Turns) -> None:
    """Do what an order says, other than to a request. Raises CannotPlay, where that is not possible now."""
    if order.driver:
        _strike_driver(order.verb, f"driver {order.driver}", watch, turns)
    elif order.verb == "restore":
        newest = len(watch.player.checkpoint.planned) - 1
        if newest < 0:
            raise CannotPlay("nothing is in the checkpoint yet, so there is no older one")
        if newest == watch.player.stage.batches - 1:
            watch.remarks.append(
                f"{order}: batch {newest} is the last, and the source has no more for it: planned anew, it is the same"
            )
        turns.start("restore and start")
    elif order.verb == "time":
        if not _is_open(watch.events, "row", "marker"):
            raise CannotPlay("no transaction is open then")
        watch.step(Event("broker", "time out"))
    else:
        if not any(event.action == "marker" for event in watch.events) or _is_open(watch.events, "marker"):
            raise CannotPlay("no marker is committed then, so none can expire")
        watch.step(Event("broker", "forget the marker"))


def _strike_driver(verb: str, name: str, watch: Watch, turns: Turns) -> None:
    driver = watch.player.drivers.get(name)
    if driver is None or not driver.alive:
        raise CannotPlay(f"{name} {'has ended' if driver else 'was not started'} by then")
    if verb == "crash":
        watch.step(Event(name, "crash"))
    elif driver.asleep == (verb == "freeze"):
        raise CannotPlay(f"{name} is {'frozen already' if driver.asleep else 'not frozen'} then")
    elif verb == "freeze":
        watch.step(Event(name, "freeze"))
    else:
        turns.wake(name)


def _is_open(events: list[Event], *parts: str) -> bool:
    """Tell whether one of these requests was answered since the last transaction ended."""
    for event in reversed(events):
        request = event.request or event.action
        if request == "time out" or (request == "fence" and event.answer == "ok"):
            return False
        if event.answer == "ok" and request in (*parts, "commit"):
            return request != "commit"
    return False
