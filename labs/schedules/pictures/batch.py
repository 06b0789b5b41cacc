"""A batch on its way, from the plan to the note that it is done, and the five places where the lab can crash it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from exactly_once_kafka.points import AFTER_COMMIT, BEFORE_CHECKPOINT, BEFORE_COMMIT, BEFORE_WRITE, FAULT_POINTS
from exactly_once_kafka.points import MID_TRANSACTION as MID
from labs.schedules.svg import (
    BLUE,
    DARK_RED,
    FAINT,
    GREEN,
    GREY,
    INK,
    PALE,
    RED,
    Drawing,
    box,
    cross,
    document,
    line,
    text,
)

LINE, TALL, GAP, ROW = 104, 66, 14, 26  # pixels: the top of the steps, their height, between them, between points
KAFKA, CHECKPOINT = "in Kafka", "in the checkpoint"
LOOKS = {"": (PALE, INK), KAFKA: ("#E5F1F8", BLUE), CHECKPOINT: ("#E5F5F1", GREEN)}


class Step(NamedTuple):
    """A step, what to say of it in two lines, where it leaves something, and how wide it is drawn."""

    name: str
    below: tuple[str, str]
    keeper: str = ""
    width: int = 100


READ = Step("read", ("how far is", "the source?"))
PLAN = Step("plan", ("offsets/{batch}", "is written"), CHECKPOINT)
COMPUTE = Step("compute", ("the counts,", "in state/"))
BEGIN = Step("begin", ("a new epoch;", "which marker?"), KAFKA, 110)
ROWS = Step("rows", ("first half,", "second half"), KAFKA, 168)
MARKER = Step("marker", ("“batch {batch}", "is in here”"), KAFKA)
COMMIT = Step("commit", ("the rows are", "visible"), KAFKA)
NOTE = Step("note", ("commits/{batch}", "is written"), CHECKPOINT)
TRANSACTION = {
    READ: {},
    PLAN: {},
    COMPUTE: {},
    BEGIN: {BEFORE_WRITE: "nothing is written"},
    ROWS: {MID: "half of the rows are in Kafka"},
    MARKER: {BEFORE_COMMIT: "all rows and the marker are in Kafka, and nobody sees them"},
    COMMIT: {AFTER_COMMIT: "the rows are visible", BEFORE_CHECKPOINT: "the sink is done; Spark has not noted that"},
    NOTE: {},
}
AT_LEAST_ONCE = {
    READ: {},
    PLAN: {},
    COMPUTE: {BEFORE_WRITE: "nothing is written"},
    ROWS: {
        MID: "half of the rows are visible",
        AFTER_COMMIT: "all rows are acknowledged and visible",
        BEFORE_CHECKPOINT: "the sink is done; Spark has not noted that",
    },
    NOTE: {},
}
Way = dict[Step, dict[str, str]]


def draw_batch(crash: str | None = None, *, transaction: bool = True, batch: int | str = "N") -> Drawing:
    """Return a batch's way with the fault points on it, and a crash at one of them, if one is named.

    Without `transaction` it is the at-least-once sink's: its rows are visible at once, and it has no marker.
    """
    way = TRANSACTION if transaction else AT_LEAST_ONCE
    points = [point for passed in way.values() for point in passed]
    if crash is not None and crash not in points:
        without = " without a transaction" if crash in FAULT_POINTS else ""
        raise ValueError(f"no fault point {crash!r}{without}; there are {', '.join(points)}")
    way = {s._replace(below=(_of(s.below[0], batch), _of(s.below[1], batch))): passed for s, passed in way.items()}
    title = f"Batch {batch}, crashed at {crash}" if crash else f"Batch {batch}, and the points at which it can crash"
    width = max(20 + sum(step.width + _gap(passed) for step, passed in way.items()), 640)
    height = LINE + TALL + 24 + ROW * len(points) + 10
    return document(width, height, title, _words(title, way, crash), _parts(title, way, crash, width), size=14)


def _of(words: str, batch: int | str) -> str:
    return words.format(batch=batch)


def _gap(passed: dict[str, str]) -> int:
    """Return the room behind a step: for a line at each point that is not in its middle."""
    return GAP + 12 * sum(point != MID for point in passed)


def _words(title: str, way: Way, crash: str | None) -> str:
    lines = [f"{title}. One step after the other:"]
    for n, (step, passed) in enumerate(way.items(), 1):
        where = f", {step.keeper}" if step.keeper else ""
        lines.append(f"{n}. {step.name}{where}: {' '.join(step.below)}")
        for point, means in passed.items():
            lines.append(f"   {'halfway, ' if point == MID else ''}{point}: {means}")
            if point == crash:
                return "\n".join([*lines, "   Here it crashes: what would come next does not happen."])
    return "\n".join(lines)


def _parts(title: str, way: Way, crash: str | None, width: int) -> Iterator[str]:
    yield text(10, 26, title, size=17, weight="bold")
    x, row, happens, bracket = 10, LINE + TALL + 30, True, []
    flags: list[str] = []
    for step, passed in way.items():
        if step.keeper == KAFKA:
            bracket += [x, x + step.width]
        halves = [step.width // 2] * 2 if step.name == ROWS.name else [step.width]
        begin = x
        for n, part in enumerate(halves):
            yield from _step(step, begin, part, n if len(halves) > 1 else None, happens)
            begin += part
            if n + 1 < len(halves) and crash == MID:
                happens = False
        behind = x + step.width + GAP // 2
        for point, means in passed.items():
            at = x + step.width // 2 if point == MID else behind + 6
            behind += 0 if point == MID else 12
            flags += _flag(at, row, point, means, point == crash)
            happens = happens and point != crash
            row += ROW
        x += step.width + _gap(passed)
    yield from _legend(min(bracket), max(bracket), len(way) == len(TRANSACTION))
    yield from flags


def _step(step: Step, x: int, width: int, half: int | None, happens: bool) -> Iterator[str]:
    """Draw a step, or one half of it; one that does not happen is pale."""
    fill, edge = LOOKS[step.keeper] if happens else ("#FFFFFF", FAINT)
    ink = INK if happens else GREY
    yield box(x, LINE, width, TALL, fill, edge, dashes="" if happens else "4 3")
    below = step.below if half is None else (step.below[half].removesuffix(","),)
    for n, words in enumerate((step.name, *below)):
        weight = "normal" if n else "bold"
        yield text(
            x + width // 2, LINE + 22 + n * 18, words, anchor="middle", size=13 + 2 * (not n), colour=ink, weight=weight
        )


def _flag(x: int, row: int, point: str, means: str, crashes: bool) -> Iterator[str]:
    """Draw a fault point: a line down to its name. Each reads to the left, so that none crosses another's."""
    colour = RED if crashes else INK
    yield line(x, LINE - 6, x, row + 5, colour, width=3 if crashes else 1.5, dashes="" if crashes else "2 3")
    yield from cross(x, LINE - 12, 9) if crashes else ()
    yield text(x - 8, row + 4, means, anchor="end", size=14, colour=DARK_RED if crashes else INK, first=point)


def _legend(first: int, last: int, transaction: bool) -> Iterator[str]:
    at = 10
    for keeper in (CHECKPOINT, KAFKA):
        fill, edge = LOOKS[keeper]
        yield box(at, 42, 22, 16, fill, edge)
        yield text(at + 30, 55, f"kept {keeper}", size=14)
        at += 200
    if transaction:
        yield line(first, LINE - 24, last, LINE - 24, BLUE)
        yield line(first, LINE - 24, first, LINE - 14, BLUE)
        yield line(last, LINE - 24, last, LINE - 14, BLUE)
        yield text((first + last) // 2, LINE - 30, "one transaction", anchor="middle", size=14, colour=BLUE)
