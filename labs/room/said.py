"""The room in words: what its view shows, for who sees no picture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from labs.room.words import BATCHES, BROKERS, DRIVERS, TEXTS, VERDICTS

NEWEST = 8  # strikes that are told


def in_words(state: dict[str, Any]) -> str:
    """Return a state of the room in words, one line a matter."""
    return "\n".join(_lines(state))


def verdict_in_words(verdict: dict[str, Any]) -> str:
    """Return the verdict with its numbers: valid: 40 of 48 delivered, 0 lost, 0 duplicated, …"""
    why = f" ({verdict['why']})" if verdict["why"] else ""
    return f"{VERDICTS[verdict['word']][1]}: {TEXTS['numbers'].format(**verdict)}, {verdict['awaited']} awaited{why}"


def report_in_words(report: dict[str, Any]) -> str:
    """Return the auditor's last word, in a line."""
    return f"{report['verdict']}: {TEXTS['numbers'].format(**report)}"


def driver_in_words(driver: dict[str, Any]) -> str:
    """Return a driver with its state, and where it is: driver 2 working (batch 5, epoch 7)."""
    at = [f"{name} {driver[name]}" for name in ("batch", "epoch") if driver[name] is not None]
    return f"driver {driver['number']} {DRIVERS[driver['state']][1]}" + (f" ({', '.join(at)})" if at else "")


def strike_in_words(strike: dict[str, Any]) -> str:
    """Return a strike and what came of it."""
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
