"""A schedule as a sequence diagram: time runs down, and each actor has a lane.

Beside each step stands what a read_committed reader sees then, in pale colours if the step has not changed it. A strip
along the bottom repeats the changes. The supervisor and the network have lanes only if they act. The same schedule
gives the same bytes. The text alternative is the schedule in words.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from labs.schedules.schedule import HELD, PROGRAM, REQUESTS, STARTS, SUPERVISOR, Event, Schedule, filled
from labs.schedules.svg import (
    BLUE,
    FAINT,
    GREEN,
    GREY,
    INK,
    ORANGE,
    RED,
    Drawing,
    arrow,
    circle,
    cross,
    document,
    line,
    text,
)

CELL = 22  # pixels: the width of a record
HEIGHT, MARGIN = 48, 20  # of the strip
HEAD, LABEL, GAP = 120, 52, 26  # widths: the strip's heading, a label such as "step 12", the gap between changes


def records(seen: tuple[int, ...], x: int, y: int, changed: bool = True) -> Iterator[str]:
    """Draw what the reader sees: a box for each record, in the order of the topic. Repeated records stand out."""
    for n, record in enumerate(seen):
        colour = ORANGE if record in seen[:n] else GREEN
        yield (
            f'<rect x="{x + n * CELL}" y="{y - 10}" width="{CELL - 3}" height="19" rx="3" fill="{colour}" '
            f'fill-opacity="{"1" if changed else "0.25"}"/>'
        )
        ink = "#FFFFFF" if changed and colour == GREEN else INK
        yield (
            f'<text x="{x + n * CELL + 9}" y="{y + 4}" text-anchor="middle" font-size="12" fill="{ink}">{record}</text>'
        )


def strip(events: Sequence[Event], width: int, top: int) -> Iterator[str]:
    """Draw what the reader sees after each step that has changed it, from left to right, in one row.

    If the row is too short for all changes, it has the last ones.
    """
    changes = [(n, event.sees) for n, event in enumerate(events, 1) if event.sees is not None]
    x, y, room = MARGIN + HEAD, top + 24, width - 2 * MARGIN - HEAD + GAP
    widths = [LABEL + max(len(seen), 2) * CELL + GAP for _, seen in changes]
    first = 0
    while first < len(changes) - 1 and sum(widths[first:]) + (CELL if first else 0) > room:
        first += 1
    yield line(MARGIN, top, width - MARGIN, top, FAINT, width=1)
    yield text(MARGIN, y + 4, "a reader sees", weight="bold")
    if not changes:
        yield text(x, y + 4, "nothing, after any step", colour=GREY)
    if first:
        yield text(x, y + 4, "…", colour=GREY)
        x += CELL
    for (n, seen), needed in zip(changes[first:], widths[first:], strict=True):
        yield text(x, y + 4, f"step {n}", colour=GREY, size=12)
        yield from records(seen, x + LABEL, y) if seen else [text(x + LABEL, y + 4, "nothing", colour=GREY, size=12)]
        x += needed


LANE, LEFT, STEP, TOP = 190, 80, 30, 86  # pixels: between programs, to the first lane, between steps, above the first
SUPERVISED = 90  # from the supervisor to the first program
HOLD, ARRIVAL = 330, 90  # from the last program to the network, with room for words about a request, and on to Kafka
DIRECT = 310  # from the last program to Kafka, if the network does not act
ANSWERS, LETTER = 150, 7  # from Kafka to the reader's view, at least, and for each letter of an answer
GOOD = ("", "ok", HELD, "known already", "as planned before")  # answers after which a driver goes on
LABELS = {
    "fence": "epoch?",
    "read marker": "marker?",
    "row": "record {row}",
    "marker": "marker {batch}",
    "commit": "commit",
    "abort": "abort",
    "plan": "plans batch {batch}, up to record {row}",
    "note": "notes: batch {batch} done",
    "decide": "decides: commit batch {batch}",
    "read": "reads record {row}",
    "write": "writes record {row}",
    "commit the offset": "commits its offset: {row} is done",
    "write with the offset": "writes record {row} with its offset",
    "freeze": "is frozen",
    "wake": "wakes up",
    "crash": "crashes",
    "time out": "aborts: timed out",
    "forget the marker": "forgets the marker",
    "start": "starts at batch {batch}",
    "warm up": "is kept warm, and waits",
    "hand over": "is told to take over",
    "take over": "takes over at batch {batch}",
    "hand out": "hands out batch {batch}",
    "give up": "gives up",
    "count": "counts: batch {batch} is done",
    "run again": "runs once more",
    "run the stage again": "its tasks run once more",
    "start at record": "starts at record {row}",
    "start anew": "no checkpoint: starts at record {row}",
    "restore and start": "older checkpoint: starts at batch {batch}",
}


def draw(schedule: Schedule) -> Drawing:
    """Return the schedule as an SVG document."""
    lanes = _lanes(schedule)
    answers = (len(event.answer) for event in schedule.events if event.request or event.action in REQUESTS)
    reader = lanes["Kafka"] + max(ANSWERS, 24 + LETTER * max(answers, default=0))
    most = max((len(event.sees or ()) for event in schedule.events), default=0)
    width, bottom = reader + max(190, most * CELL + 30), TOP + len(schedule.events) * STEP + 30
    title = f"{schedule.stage}: {schedule.anomaly or 'no anomaly'}"
    parts = [
        text(20, 28, title, size=16, weight="bold"),
        *(text(x, 62, name, anchor="middle", weight="bold") for name, x in lanes.items()),
        text(reader, 62, "a reader sees", weight="bold"),
        *_life_lines(schedule, lanes, bottom),
    ]
    seen: tuple[int, ...] = ()
    for n, event in enumerate(schedule.events):
        y = TOP + n * STEP
        parts.append(text(16, y + 4, str(n + 1), colour="#777777", size=11))
        parts += _step(event, y, lanes)
        seen = seen if event.sees is None else event.sees
        parts += records(seen, reader, y, event.sees is not None)
    if not schedule.events:
        return document(width, bottom, title, str(schedule), parts)
    return document(width, bottom + HEIGHT, title, str(schedule), [*parts, *strip(schedule.events, width, bottom)])


def _lanes(schedule: Schedule) -> dict[str, int]:
    """Return the x of each lane: the supervisor, the programs, the network and Kafka."""
    programs = sorted({_program(event) for event in schedule.events} - {""})
    place, lanes = LEFT, dict[str, int]()
    if any(event.actor == "supervisor" for event in schedule.events):
        lanes["supervisor"] = place
        place += SUPERVISED
    lanes |= {name: place + n * LANE for n, name in enumerate(programs)}
    last = max(lanes.values(), default=place)
    if any(event.actor == "network" or event.answer == HELD for event in schedule.events):
        lanes["network"] = last + HOLD
        return lanes | {"Kafka": last + HOLD + ARRIVAL}
    return lanes | {"Kafka": last + DIRECT}


def _program(event: Event) -> str:
    """Return the program that a step is about: it acts, its request is delivered, or it is started."""
    return event.actor if PROGRAM.fullmatch(event.actor) else event.whose


def _life_lines(schedule: Schedule, lanes: dict[str, int], bottom: int) -> Iterator[str]:
    """Draw each lane: solid while the actor can act, dotted while it sleeps or is dead."""
    for name, x in lanes.items():
        late = any(event.action in SUPERVISOR and event.whose == name for event in schedule.events)
        changes = [(TOP - 16, not late and name != "network")]
        for n, event in enumerate(schedule.events):
            awake = _is_awake_after(event, name)
            if awake is not None and awake != changes[-1][1]:
                changes.append((TOP + n * STEP, awake))
        changes.append((bottom - 20, False))
        for (start, awake), (end, _) in itertools.pairwise(changes):
            yield line(x, start, x, end, INK if awake else FAINT, dashes="" if awake else "2 5")


def _is_awake_after(event: Event, name: str) -> bool | None:
    """Tell whether a program can act after an event; None if the event changes nothing about that."""
    if not PROGRAM.fullmatch(name):
        return None
    if event.action in SUPERVISOR and event.whose == name:
        return True
    if event.action in STARTS:  # one at a time: the others sleep or are dead
        return False
    if event.actor != name:
        return None
    return event.action not in ("crash", "freeze") and (event.answer in GOOD or not _is_fatal(event))


def _is_fatal(event: Event) -> bool:
    return event.action != "read marker" and not event.answer.startswith("epoch ")


def _step(event: Event, y: int, lanes: dict[str, int]) -> Iterator[str]:
    label = filled(LABELS.get(event.action, event.action), event)
    epoch = f" · epoch {event.epoch}" if event.epoch is not None and event.epoch >= 0 else ""
    epoch += f" · number {event.sequence}" if event.sequence is not None else ""
    driver, kafka = lanes.get(_program(event), 0), lanes["Kafka"]
    middle = lanes.get("network", kafka)
    if event.actor == "network":
        label = LABELS[event.request].format(**event._asdict())
        yield circle(middle, y)
        if event.action == "lose":
            yield from cross(middle, y, 8)
            yield text(middle - 14, y + 4, f"lost: {label}{epoch}", anchor="end", colour=RED)
        else:
            again = {"deliver again": ", 1st of 2", "lose the answer": "; answer lost"}.get(event.action, "")
            yield arrow(middle, y, kafka, y, dashes="6 3")
            yield text(middle - 14, y + 4, f"{label} of {event.whose}{epoch} arrives{again}", anchor="end")
            yield from _answer(event, kafka, y)
            if event.action == "lose the answer":
                yield from cross(kafka, y, 8)
    elif event.action in REQUESTS:
        held = event.answer == HELD
        yield arrow(driver, y, middle - 6 if held else kafka, y)
        yield text(driver + 10, y - 6, label + epoch, colour=BLUE)
        yield circle(middle, y) if held else ""
        yield from _answer(event, middle + 12 if held else kafka, y)
    elif event.action == "crash":
        yield from cross(driver, y, 9)
        yield text(driver + 16, y + 4, label, colour=RED, weight="bold")
    else:
        x = kafka if event.actor == "broker" else driver
        colour = RED if event.actor == "broker" or event.answer not in GOOD else INK
        if event.actor == "supervisor":
            yield arrow(lanes["supervisor"], y, x - 4, y, colour=INK)
        yield f'<circle cx="{x}" cy="{y}" r="4" fill="{colour}"/>'
        answer = f": {event.answer}" if event.answer else ""
        yield text(x + 12, y + 4, label + answer, colour=colour)


def _answer(event: Event, x: int, y: int) -> Iterator[str]:
    if event.answer not in ("", "ok"):
        yield text(x + 8, y + 4, event.answer, size=12, colour=RED if event.answer == "fenced" else INK)
