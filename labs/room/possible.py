"""The orders that a room takes, and why one of them cannot be carried out just now, or could not after all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from labs.room.state import STAGE_NAMES
from labs.room.traffic import MOST

if TYPE_CHECKING:
    from labs.room.session import Session

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
AFTER_THE_END = ("choose-stage", "save")  # what a session that is judged still takes
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
MOMENTS = ("", "rows", "commit")  # of a kill: now, when rows of a batch are in the log, when they are committed
MOST_DRIVERS = 3


class NotDone(Exception):
    """An order could not be carried out after all; the message says why."""


def possible(session: Session) -> list[str]:
    """Return the orders that can be carried out now, with the right arguments."""
    return [order for order in ORDERS if not _state_against(session, order, {})]


def why_not(session: Session, order: str, arguments: Mapping[str, Any]) -> str:
    """Say in one line why an order cannot be carried out, or nothing."""
    if order not in ORDERS:
        return f"no order is called {order!r:.40}; there are {', '.join(ORDERS)}"
    if unknown := [name for name in arguments if name not in ORDERS[order]]:
        return f"{order} has no argument {unknown[0]!r:.40}"
    return _arguments_against(session, order, arguments) or _state_against(session, order, arguments)


def rate_against(rate: object) -> str:
    """Say what is wrong with a rate."""
    if type(rate) in (int, float) and 0 <= rate <= MOST:  # type: ignore[operator]
        return ""
    return f"a rate of {rate!r:.40} is not possible; expected 0 to {MOST:,} records a second"


def stage_against(stage: object) -> str:
    """Say what is wrong with a stage."""
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
    if arguments.get("at", "") not in MOMENTS:
        return f"a driver is killed at once, at its rows or at its commit, not at {arguments['at']!r:.40}"
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
        which = "no driver" if number is None else f"driver {number} is not there, or not"
        return "" if drivers.find(number, *states) else f"{order}: {which} {' or '.join(states)}"
    against = {
        "start-traffic": act.traffic.on and "it is on",
        "stop-traffic": not act.traffic.on and "it is off",
        "start-driver": len(drivers.living) >= MOST_DRIVERS and f"there are {MOST_DRIVERS} already",
        "kill-executor": not session.executor_ids and "there is none beside the driver (executors=2 starts two)",
        "cut-network": network.is_cut and "it is cut already",
        "heal-network": not network.is_cut and "it is whole",
        "hold-commit": _no_commit_to_hold(session),
        "deliver-commit": network.hold != "held" and "no commit is held",
        "delete-checkpoint": _no_checkpoint(session),
        "finish": not act.live.records and "nothing was sent yet: start the traffic",
    }
    return f"{order}: {against[order]}" if against.get(order) else ""


def _no_commit_to_hold(session: Session) -> str:
    if not session.act.has_transactions:
        return "this stage has no transactions, and so no commits"
    if session.equipment.nodes > 1:
        return "only with one broker, whose clients all come through the proxy"
    return "one is held already, or waited for" if session.network.hold else ""


def _no_checkpoint(session: Session) -> str:
    if not session.act.keeps_checkpoint:
        return "this stage keeps none"
    return "" if session.act.checkpoint.planned >= 0 else "nothing is in it yet"
