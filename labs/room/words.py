"""The words and signs of the room's view. The browser and the still picture take them from here, and invent none.

A sign stands beside each state, so that nothing is said by colour alone. `{…}` is filled in from the state.
"""

from __future__ import annotations

from typing import Any

NUMBERS = ("delivered", "lost", "duplicated", "conflicting", "torn", "awaited")
VERDICTS = {"valid": ("✓", "valid"), "invalid": ("✕", "invalid"), "unknown": ("?", "unknown")}
DRIVERS = {
    "warm": ("◔", "warm spare"),
    "starting": ("◑", "starting"),
    "working": ("●", "working"),
    "frozen": ("❄", "frozen"),
    "killed": ("✕", "killed"),
    "fenced": ("⊘", "fenced"),
    "refused": ("⊘", "refused"),
    "ended": ("○", "ended"),
}
BROKERS = {
    "running": ("●", "running"),
    "frozen": ("❄", "frozen"),
    "killed": ("✕", "killed"),
    "starting": ("◑", "starting"),
}
BATCHES = {"planned": ("○", "planned"), "running": ("▶", "running"), "noted": ("✓", "noted")}
ENTRIES = {"plain": ("", "no transaction"), "open": ("…", "open"), "committed": ("✓", "committed")}
ENTRIES |= {"aborted": ("✕", "aborted"), "commit": ("C", "commit marker"), "abort": ("A", "abort marker")}


def _order(label: str, hint: str, *states: str, takes: str = "") -> dict[str, Any]:
    """`takes` names the argument that says which target; `states` are those of the target in which it is offered."""
    return {"label": label, "hint": hint, "states": states, "takes": takes}


# The orders as `Room.do` knows them.
ORDERS = {
    "start-traffic": _order("Start traffic", "start sending records", "off"),
    "stop-traffic": _order("Stop traffic", "stop sending records", "on"),
    "set-rate": _order("records/s", "how many records are sent per second"),
    "choose-stage": _order("Stage", "a new act: fresh topics, a fresh checkpoint, this stage's sink"),
    "kill-driver": _order(
        "Kill", "kill driver {number}: nothing is flushed", "starting", "working", "frozen", takes="driver"
    ),
    "freeze-driver": _order(
        "Freeze", "freeze driver {number}: it does not notice that time passes", "starting", "working", takes="driver"
    ),
    "wake-driver": _order("Wake", "wake driver {number}: it goes on where it was", "frozen", takes="driver"),
    "start-driver": _order("Start a second driver", "start another driver beside the living one"),
    "keep-spare": _order("Keep a spare warm", "a driver, started and idle, takes over when the working one dies"),
    "kill-broker": _order("Kill", "kill broker {number}", "running", "frozen", takes="broker"),
    "freeze-broker": _order("Freeze", "freeze broker {number}", "running", takes="broker"),
    "wake-broker": _order("Wake", "wake broker {number}", "frozen", takes="broker"),
    "start-broker": _order("Start", "start broker {number} again", "killed", takes="broker"),
    "kill-executor": _order("Kill one", "kill an executor: its tasks are done again elsewhere"),
    "cut-network": _order("Cut", "let nothing pass between the clients and the broker", "connected"),
    "heal-network": _order("Heal", "let everything pass again", "cut"),
    "hold-commit": _order("Hold the next", "stop the next commit on its way to the broker", "free"),
    "deliver-commit": _order("Deliver it", "let the commit that is held arrive now", "held"),
    "delete-checkpoint": _order("Delete", "stop the driver and delete its checkpoint: a restart remembers nothing"),
    "finish": _order("Finish and judge", "stop the traffic, let it drain, and ask the independent auditor"),
    "save": _order("Save", "save the recording, the audit and the strikes in this folder"),
}

TEXTS = {
    "title": "The operations room",
    "act": "act {act}",
    "impossible": "{hint} (not possible now)",
    "stage": "Stage",
    "traffic": "Traffic",
    "traffic_on": "● {sent} records sent",
    "traffic_off": "○ stopped; {sent} records sent",
    "reported": "{sign} The auditor's final report: {verdict}. {numbers}",
    "verdict": "Running verdict",
    "numbers": "{delivered} of {expected} delivered, {lost} lost, {duplicated} duplicated, {conflicting} conflicting, "
    "{torn} torn",
    "expected": "of {expected} expected",
    "lives": "Who lives",
    "drivers": "Drivers",
    "driver": "driver {number}",
    "driver_at": "batch {batch}",
    "epoch": "epoch {epoch}",
    "no_drivers": "no driver yet",
    "brokers": "Brokers",
    "broker": "broker {number}",
    "no_brokers": "no broker yet",
    "executors": "Executors",
    "executors_running": "● {running} of {wanted} running",
    "no_executors": "none: the driver computes",
    "network": "Network",
    "connected": "● connected",
    "cut": "✕ cut",
    "commit": "Commit",
    "hold": "flows freely",
    "hold_waiting": "◔ the next one will be held",
    "hold_held": "❚❚ held: epoch {held_epoch}",
    "hold_held_nameless": "❚❚ held",
    "memory": "Checkpoint",
    "checkpoint": "what a restart remembers",
    "marker": "marker: batch {batch}, epoch {epoch}",
    "no_marker": "no marker",
    "log": "The log of the sink's topic",
    "log_hint": "· requests counted, and the end of the client's address",
    "log_words": "The log ends at offset {end}; the last stable offset is {stable}. {last}",
    "log_empty": "Nothing has been written yet.",
    "stable": "last stable offset {stable}",
    "transaction": "{sign} {state} · epoch {epoch} · batch {batch}",
    "transaction_of_none": "{sign} {state} · epoch {epoch}",
    "transaction_shorter": "{sign} epoch {epoch} · batch {batch}",
    "transaction_short": "{sign} epoch {epoch}",
    "plain": "batch {batch}, no transaction",
    "plain_of_none": "no transaction",
    "plain_shorter": "batch {batch}",
    "plain_short": "",
    "row": "offset {offset}: client {ip} made {count} requests in the window of {window}; {state}, epoch {epoch}",
    "plain_row": "offset {offset}: client {ip} made {count} requests in the window of {window}; {state}",
    "control": "offset {offset}: {state}, epoch {epoch}",
    "again": "2×",
    "copy": " (a copy: this result is readable already)",
    "committed": "read_committed",
    "uncommitted": "read_uncommitted",
    "sees": "sees {count} results",
    "batches": "Batches",
    "batch": "batch {number}",
    "batch_by": "driver {driver}",
    "runs": "{runs}×",
    "begun": "begun {runs} times",
    "no_batches": "no batch yet",
    "rates": "The last 60 seconds",
    "sent": "sent",
    "counted": "counted",
    "behind": "behind",
    "per_second": "/s",
    "most": "up to {most}",
    "chronicle": "Strikes and what came of them",
    "strike": "{time} s",
    "no_strikes": "Nothing was struck yet.",
    "pending": "…",
    "folder": "folder",
    "recording": "Recording",
    "play": "Play",
    "pause": "Pause",
    "speed": "Speed",
    "times": "{speed}×",
    "position": "Position in the recording",
    "at": "{time} of {seconds} s",
    "previous": "Previous strike",
    "next": "Next strike",
}


def words() -> dict[str, Any]:
    """Return all of it as plain data, as the browser gets it."""
    kinds = {"verdicts": VERDICTS, "drivers": DRIVERS, "brokers": BROKERS, "batches": BATCHES, "entries": ENTRIES}
    signs = {kind: {name: list(each) for name, each in of_kind.items()} for kind, of_kind in kinds.items()}
    orders = {name: {**order, "states": list(order["states"])} for name, order in ORDERS.items()}
    return {"signs": signs, "orders": orders, "texts": TEXTS, "numbers": list(NUMBERS)}
