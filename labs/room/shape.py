"""What each part of the room's state is made of, to tell a recording that can be shown from one that cannot.

The words are in labs/room/state.py; here are the types, as Python writes them. Guarantee: a state that fits is drawn,
in the browser and as a picture, whatever numbers and texts are in it. Where it stops: it may make no sense.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from labs.room.words import BATCHES, BROKERS, DRIVERS, ENTRIES, VERDICTS

LARGEST = 2**53  # of the whole numbers, JavaScript has no larger ones without gaps
WHOLE, NUMBER, TEXT, FLAG = int, float, str, bool


class OrNone:
    """A value, or null."""

    def __init__(self, shape: Any):
        self.shape = shape


ANY_WHOLE = OrNone(WHOLE)
COUNTS = dict.fromkeys(("expected", "delivered", "lost", "duplicated", "conflicting", "torn"), WHOLE)
# A type; a set of the texts there are; a dictionary with a shape for each of its keys; a list of one shape.
SHAPES: dict[str, Any] = {
    "time": NUMBER,
    "stage": {"name": TEXT, "names": [TEXT], "act": WHOLE},
    "traffic": {"on": FLAG, "rate": NUMBER, "sent": WHOLE, "per_second": NUMBER},
    "counted": {"records": WHOLE, "per_second": NUMBER, "behind": WHOLE},
    "batches": [{"number": WHOLE, "state": set(BATCHES), "driver": ANY_WHOLE, "runs": WHOLE}],
    "drivers": [{"number": WHOLE, "state": set(DRIVERS), "batch": ANY_WHOLE, "epoch": ANY_WHOLE}],
    "spare": FLAG,
    "brokers": [{"number": WHOLE, "state": set(BROKERS)}],
    "executors": {"wanted": WHOLE, "running": WHOLE},
    "network": {"cut": FLAG, "hold": {"", "waiting", "held"}, "held_epoch": ANY_WHOLE},
    "log": {
        "end": WHOLE,
        "stable": WHOLE,
        "entries": [
            {
                "offset": WHOLE,
                "kind": {"row", "commit", "abort", "other"},
                "state": set(ENTRIES) - {"commit", "abort"},
                "producer": ANY_WHOLE,
                "epoch": ANY_WHOLE,
                "batch": ANY_WHOLE,
                "window": OrNone(TEXT),
                "ip": OrNone(TEXT),
                "count": ANY_WHOLE,
                "copy": FLAG,
            }
        ],
    },
    "marker": OrNone({"batch": WHOLE, "epoch": ANY_WHOLE}),
    "readers": {"committed": WHOLE, "uncommitted": WHOLE},
    "verdict": {**COUNTS, "word": set(VERDICTS), "awaited": WHOLE, "why": TEXT},
    "chronicle": [{"number": WHOLE, "time": NUMBER, "strike": TEXT, "words": TEXT, "consequence": TEXT}],
    "possible": [TEXT],
    "message": TEXT,
    "report": OrNone({**COUNTS, "verdict": set(VERDICTS), "summary": TEXT}),
}


def trouble(changes: dict[str, Any]) -> str:
    """Return what is wrong with a part of a state, in a few words; nothing where it fits."""
    for key, value in changes.items():
        if key not in SHAPES:
            return f"the unknown key {key!r:.60}"
        for fault in _faults(key, value, SHAPES[key]):
            return fault
    return ""


def _faults(name: str, value: Any, shape: Any) -> Iterator[str]:
    if isinstance(shape, OrNone):
        if value is not None:
            yield from _faults(name, value, shape.shape)
    elif isinstance(shape, dict):
        if not isinstance(value, dict):
            yield f"{name} is {value!r:.60}, and no object"
            return
        for key in sorted(shape.keys() - value.keys()):
            yield f"{name} lacks {key!r}"
        for key in shape:
            yield from _faults(f"{name}.{key}", value.get(key), shape[key])
    elif isinstance(shape, list):
        if not isinstance(value, list):
            yield f"{name} is {value!r:.60}, and no list"
            return
        for n, each in enumerate(value):
            yield from _faults(f"{name}[{n}]", each, shape[0])
    elif not fits(value, shape):
        wanted = f"one of {', '.join(map(repr, sorted(shape)))}" if isinstance(shape, set) else NAMES[shape]
        yield f"{name} is {value!r:.60}, and should be {wanted}"


NAMES = {WHOLE: "a whole number", NUMBER: "a number", TEXT: "a text", FLAG: "true or false"}


def fits(value: Any, shape: Any) -> bool:
    """Tell whether a value that holds no others is of a type, or one of the texts there are."""
    if isinstance(shape, set):
        return isinstance(value, str) and value in shape
    if shape in (NUMBER, WHOLE):  # NaN and the infinities are not below anything
        return type(value) in (shape, WHOLE) and abs(value) <= LARGEST
    if shape is TEXT:  # half a surrogate pair cannot be sent to a browser
        return isinstance(value, str) and not any("\ud800" <= c <= "\udfff" for c in value)
    return type(value) is shape
