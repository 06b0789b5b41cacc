"""The state of the room, as plain values for JSON, and the words and signs for it.

Every key is always there:

time       float, seconds since the room was opened
stage      {"name", "names": the five of the staircase, "act"}; a change of stage begins a new act, with counts from 0
traffic    {"on", "rate": records/s wanted, "sent", "per_second"}
counted    {"records": in noted batches, which are in the checkpoint's commit log, "per_second", "behind"}
batches    the last 12: {"number", "state": planned|running|noted, "driver", "runs": how often it was begun}
drivers    the last 4: {"number", "state": one of drivers.STATES, "batch": last begun, "epoch": newest in the log}
spare      whether a hot spare is wanted; it is listed in drivers, starting or warm
brokers    {"number", "state": running|frozen|killed|starting}
executors  {"wanted", "running"}
network    {"cut", "hold": ""|waiting|held, "held_epoch"}
log        {"end", "stable": the last stable offset, "entries": the last 48 of the sink topic's partition, and before
           them those that are new or changed}
           an entry: {"offset", "kind": row|commit|abort|other, "state": plain|open|committed|aborted, "producer",
           "epoch", "batch", "window", "ip", "count", "copy": readable at a lower offset already}
marker     None or {"batch", "epoch"}: the last committed marker
readers    {"committed", "uncommitted"}: how many results a reader of each isolation level sees
verdict    {"word": valid|invalid|unknown, "expected", "delivered", "awaited", "lost", "duplicated", "conflicting",
           "torn", "why"} by now, from labs.evidence.auditor; awaited: expected, and not due yet
evidence   the first five of each kind: {"kind": one of EVIDENCE, "words", "entries": those of the log that it names}
waiting    "", or what the awaited results wait for: driver 2 is starting, about 20 s
chronicle  the last 40: {"number", "time", "strike", "words", "consequence": "" until it has shown}
possible   the orders that can be carried out now; those of an aimed kill are "kill-driver rows", "… before", "… commit"
message    "", or one line: why the last order was not carried out, what it did, or what the room waits for
report     None, or the audit after `finish`: {"verdict", "expected", "delivered", "lost",
           "duplicated", "conflicting", "torn", "why"}

The browser and the still picture take all their words from here. A sign stands beside each state, so that nothing is
said by colour alone. `{…}` is filled in from the state. `in_words` describes a state for readers who see no picture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from labs.runs.staircase import EXACTLY_ONCE, STAGES

State = dict[str, Any]

STAGE_NAMES = tuple(stage.name for stage in STAGES)
ENTRIES_SHOWN, BATCHES_SHOWN, DRIVERS_SHOWN, STRIKES_SHOWN = 48, 12, 4, 40
MOST_RATE = 5_000  # records a second
LONGEST_BURST = 400  # entries of the log that may be shown at once

NO_VERDICT = {
    "word": "unknown",
    "expected": 0,
    "delivered": 0,
    "awaited": 0,
    "lost": 0,
    "duplicated": 0,
    "conflicting": 0,
    "torn": 0,
    "why": "nothing was delivered yet",
}


def empty_state(stage: str = EXACTLY_ONCE.name) -> State:
    """Return the state of a room in which nothing has happened."""
    return {
        "time": 0.0,
        "stage": {"name": stage, "names": list(STAGE_NAMES), "act": 1},
        "traffic": {"on": False, "rate": 0, "sent": 0, "per_second": 0.0},
        "counted": {"records": 0, "per_second": 0.0, "behind": 0},
        "batches": [],
        "drivers": [],
        "spare": False,
        "brokers": [],
        "executors": {"wanted": 0, "running": 0},
        "network": {"cut": False, "hold": "", "held_epoch": None},
        "log": {"end": 0, "stable": 0, "entries": []},
        "marker": None,
        "readers": {"committed": 0, "uncommitted": 0},
        "verdict": dict(NO_VERDICT),
        "evidence": [],
        "waiting": "",
        "chronicle": [],
        "possible": [],
        "message": "",
        "report": None,
    }


KEYS = tuple(empty_state())


def changes(old: State, new: State) -> State:
    """Return the keys whose values differ, with their new values."""
    return {key: value for key, value in new.items() if old.get(key) != value}


NUMBERS = ("delivered", "lost", "duplicated", "conflicting", "torn", "awaited")
# What each counter counts, in a line.
TIPS = {
    "delivered": "results that are in the log, with the right count",
    "lost": "results in no batch, though their window is closed",
    "duplicated": "records of a result that is there already",
    "conflicting": "results with two different counts in the log",
    "torn": "batches of which a reader sees only some rows",
    "awaited": "results that are sent and not due yet",
}
FLAWS = ("duplicated", "conflicting", "lost", "torn")
EVIDENCE = (*FLAWS, "awaited", "delivered")
VERDICTS = {"valid": ("✓", "valid"), "invalid": ("✕", "invalid"), "unknown": ("?", "unknown")}
DRIVERS = {
    "warming": ("◔", "spare, starting"),
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
BATCHES = {"planned": ("○", "planned"), "running": ("▶", "running"), "noted": ("✓", "in checkpoint")}
ENTRIES = {"plain": ("", "no transaction"), "open": ("…", "open"), "committed": ("✓", "committed")}
# The key to the picture of the log, and the words beside it.
KEY = (
    ("3  .1", "one record: 3 requests in a window of 5 s, by the client whose address ends in .1"),
    ("solid frame", "a committed transaction, or records without a transaction"),
    ("dashed frame", "an open transaction: a reader with read_committed does not see it yet"),
    ("struck out", "an aborted transaction: a reader with read_committed never sees it"),
    ("2×", "a copy: the same result is readable at a lower offset already"),
    ("C and A", "the record with which Kafka commits or aborts a transaction"),
    ("epoch", "a number that grows with each new producer of a name; Kafka refuses all older ones, as fenced"),
    ("last stable offset", "a reader with read_committed gets no record from here on: a transaction is open"),
    ("torn", "a reader sees some rows of a batch, and not all"),
    ("conflicting", "the log has two different counts for one client and window"),
)
ENTRIES |= {"aborted": ("✕", "aborted"), "commit": ("C", "commit marker"), "abort": ("A", "abort marker")}


def _order(label: str, hint: str, *states: str, takes: str = "") -> dict[str, Any]:
    """`takes` names the argument for the target; a button is offered while the target is in one of `states`."""
    return {"label": label, "hint": hint, "states": states, "takes": takes}


# The orders as `Room.do` knows them.
ORDERS = {
    "start-traffic": _order("Start traffic", "start sending records", "off"),
    "stop-traffic": _order("Stop traffic", "stop sending records", "on"),
    "set-rate": _order("records/s", "how many records are sent per second"),
    "choose-stage": _order("Stage", "a new act: fresh topics, a fresh checkpoint, this stage's sink"),
    "kill-driver": _order(
        "Kill now", "kill driver {number}: nothing is flushed", "starting", "working", "frozen", takes="driver"
    ),
    "freeze-driver": _order(
        "Freeze", "freeze driver {number}: it does not notice that time passes", "starting", "working", takes="driver"
    ),
    "wake-driver": _order("Wake", "wake driver {number}: it goes on where it was", "frozen", takes="driver"),
    "start-driver": _order("Start another driver", "start another driver beside the living one"),
    "keep-spare": _order("Keep a spare warm", "a driver, started and idle, takes over when the working one dies"),
    "kill-broker": _order("Kill", "kill broker {number}", "running", "frozen", takes="broker"),
    "freeze-broker": _order("Freeze", "freeze broker {number}", "running", takes="broker"),
    "wake-broker": _order("Wake", "wake broker {number}", "frozen", takes="broker"),
    "start-broker": _order("Start", "start broker {number} again", "killed", takes="broker"),
    "kill-executor": _order("Kill one", "kill an executor: its tasks are done again elsewhere"),
    "cut-network": _order("Cut", "let nothing pass between the clients and the broker", "connected"),
    "heal-network": _order("Heal", "let everything pass again", "cut"),
    "hold-commit": _order("Hold next commit", "stop the next commit on its way to the broker", "free"),
    "deliver-commit": _order("Deliver late commit", "let the commit that is held arrive now", "held"),
    "delete-checkpoint": _order(
        "Delete checkpoint", "stop the driver and delete its checkpoint: a restart remembers nothing"
    ),
    "finish": _order("Finish and judge", "stop the traffic, let it drain, and let the auditor judge"),
    "save": _order("Save recording", "save the recording, the audit and the strikes in this folder"),
}

TEXTS = {
    "title": "The operations room",
    "purpose": "Requests are counted. Kill what you like. Does every count arrive once?",
    "steps": "Three steps",
    "step_start": "Start traffic",
    "step_strike": "Kill the driver",
    "step_watch": "Watch the verdict",
    "size": "Size of the text",
    "smaller": "smaller text",
    "smaller_sign": "A−",
    "larger": "larger text",
    "larger_sign": "A+",
    "dismiss": "close this message",
    "act": "act {act}",
    "coming": "new act in {left} s",
    "cancel": "Cancel",
    "impossible": "{hint} (not possible now)",
    "stage": "Stage",
    "traffic": "Traffic",
    "traffic_on": "● {sent} records sent",
    "traffic_off": "○ stopped; {sent} records sent",
    "verdict": "Running verdict",
    "final": "Final verdict",
    "judged": "The auditor has read both topics again, from the beginning.",
    "so_far_valid": "valid so far",
    "so_far_invalid": "invalid",
    "so_far_unknown": "no verdict yet",
    "waits": "{awaited} waiting: {waiting}",
    "waits_alone": "Waiting: {waiting}",
    "awaited": "{awaited} waiting: their windows are still open, or their batch is on its way",
    "count": "{number} {name}: {tip}",
    "evidence": "Evidence",
    "evidence_of": "{kind}: {tip}",
    "no_evidence": "none",
    "not_kept": "not in this recording",  # an older one
    "show_records": "{words}: show it in the log",
    "expected": "of {expected} expected",
    "lives": "Processes",
    "drivers": "Drivers",
    "driver": "driver {number}",
    "driver_at": "batch {batch}",
    "epoch": "epoch {epoch}",
    "no_drivers": "no driver yet",
    "no_gone_drivers": "no driver has ended",
    "gone_drivers": "drivers that have ended: {number}",
    "aim_rows": "Kill in mid-rows",
    "aim_rows_hint": "kill the driver when the first rows of its batch are in the log",
    "aim_before": "Kill before commit",
    "aim_before_hint": "kill the driver when all rows of its batch are in the log, and its transaction is open",
    "aim_commit": "Kill after commit",
    "aim_commit_hint": "kill the driver after its commit, before the batch is in the checkpoint",
    "brokers": "Brokers",
    "broker": "broker {number}",
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
    "marker": "marker: batch {batch}, epoch {epoch}",
    "no_marker": "stage without marker",
    "no_marker_yet": "no marker yet",
    "log": "The log of the sink's topic",
    "log_hint": "· requests counted, and the end of the client's address",
    "log_words": "The log ends at offset {end}; the last stable offset is {stable}. {last}",
    "earlier": "◂ Earlier",
    "later": "Later ▸",
    "newest": "newest",
    "newer": "{number} newer",
    "key": "Key to the picture, and what the words mean",
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
    "chronicle": "Strikes and their consequences",
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
    """Return all words and signs as plain data for the browser."""
    kinds = {"verdicts": VERDICTS, "drivers": DRIVERS, "brokers": BROKERS, "batches": BATCHES, "entries": ENTRIES}
    signs = {kind: {name: list(each) for name, each in of_kind.items()} for kind, of_kind in kinds.items()}
    orders = {name: {**order, "states": list(order["states"])} for name, order in ORDERS.items()}
    plain = {"tips": TIPS, "flaws": list(FLAWS), "key": [list(each) for each in KEY], "most_rate": MOST_RATE}
    plain["with_marker"] = EXACTLY_ONCE.name
    return {"signs": signs, "orders": orders, "texts": TEXTS, "numbers": list(NUMBERS), **plain}


COUNTED = (
    "{delivered} of {expected} delivered, {lost} lost, {duplicated} duplicated, {conflicting} conflicting, {torn} torn"
)
NEWEST = 8  # strikes that `in_words` describes


def in_words(state: dict[str, Any]) -> str:
    """Return a description of a state, one line for each part."""
    return "\n".join(_lines(state))


def verdict_in_words(verdict: dict[str, Any]) -> str:
    """Return the verdict with its numbers, as in "valid: 40 of 48 delivered, 0 lost, 0 duplicated, …"."""
    why = f" ({verdict['why']})" if verdict["why"] else ""
    return f"{VERDICTS[verdict['word']][1]}: {COUNTED.format(**verdict)}, {verdict['awaited']} awaited{why}"


def report_in_words(report: dict[str, Any]) -> str:
    """Return the auditor's report in one line."""
    return f"{report['verdict']}: {COUNTED.format(**report)}"


def driver_in_words(driver: dict[str, Any]) -> str:
    """Return a driver with its state, batch and epoch, as in "driver 2 working (batch 5, epoch 7)"."""
    at = [f"{name} {driver[name]}" for name in ("batch", "epoch") if driver[name] is not None]
    return f"driver {driver['number']} {DRIVERS[driver['state']][1]}" + (f" ({', '.join(at)})" if at else "")


def strike_in_words(strike: dict[str, Any]) -> str:
    """Return a strike and its consequence."""
    consequence = f": {strike['consequence']}" if strike["consequence"] else ""
    return f"{strike['time']:.1f} s, {strike['words']}{consequence}"


def _lines(state: dict[str, Any]) -> Iterator[str]:
    stage, traffic, counted, log = (state[key] for key in ("stage", "traffic", "counted", "log"))
    yield f"The operations room after {state['time']:.0f} s, stage {stage['name']!r}, act {stage['act']}."
    yield f"Verdict {verdict_in_words(state['verdict'])}."
    if state["report"]:
        yield f"The auditor's final report: {report_in_words(state['report'])}."
    yield f"{traffic['sent']} records sent, {counted['records']} counted, {counted['behind']} behind."
    yield "; ".join(map(driver_in_words, state["drivers"])) + "." if state["drivers"] else "No driver."
    brokers = [f"broker {each['number']} {BROKERS[each['state']][1]}" for each in state["brokers"]]
    yield "; ".join(brokers) + "." if brokers else "No broker."
    if state["batches"]:
        yield "; ".join(map(_batch, state["batches"][-4:])) + "."
    marker = state["marker"]
    yield f"The log ends at offset {log['end']}, its last stable offset is {log['stable']}" + (
        f"; the marker says batch {marker['batch']}, epoch {marker['epoch']}." if marker else "."
    )
    readers = state["readers"]
    yield f"read_committed sees {readers['committed']} results, read_uncommitted {readers['uncommitted']}."
    yield from (f"{each['number']}. {strike_in_words(each)}." for each in state["chronicle"][-NEWEST:])


def _batch(batch: dict[str, Any]) -> str:
    repeated = f", {batch['runs']} times begun" if batch["runs"] > 1 else ""
    return f"batch {batch['number']} {BATCHES[batch['state']][1]}{repeated}"
