"""A schedule as a sequence diagram: time runs down, each actor has a lane, and a reader's view stands beside each step.

The supervisor and the network have theirs where they act.

An SVG of plain text and lines, the same byte for byte for the same schedule, made without a browser. Its background is
white whatever is around it, so that it can be read in the light, in the dark and in print. Its text alternative is
the schedule in words.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator
from html import escape

from labs.schedules.schedule import HELD, PROGRAM, REQUESTS, STRIKES, SUPERVISOR, Event, Schedule, filled

LANE, LEFT, STEP, TOP = 190, 80, 30, 86  # pixels: between programs, to the first lane, between steps, above the first
SUPERVISED = 90  # from the supervisor to the first program
HOLD, ARRIVAL = 330, 90  # from the last program to the network, with room for what it carries, and on to Kafka
DIRECT = 310  # from the last program to Kafka, where the network does nothing of its own
ANSWERS, LETTER = 150, 7  # from Kafka to the reader's view, at least, and for each letter of an answer
CELL = 22  # of a record that the reader sees
INK, FAINT, BLUE, RED, GREEN, ORANGE = "#222222", "#BBBBBB", "#0072B2", "#D55E00", "#009E73", "#E69F00"
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
    "run again": "runs once more",
    "start at record": "starts at record {row}",
    "restore and start": "older checkpoint: starts at batch {batch}",
}


class Drawing(str):
    """An SVG document, which a notebook shows as a picture, and as the schedule in words where it shows no pictures."""

    words = ""

    def _repr_html_(self) -> str:
        # As an image, since JupyterLab shows no SVG in a notebook that it does not trust, such as one just cloned.
        picture = base64.b64encode(self.encode()).decode()
        return f'<img src="data:image/svg+xml;base64,{picture}" alt="{escape(self.words)}">'

    def __repr__(self) -> str:
        return self.words


def draw(schedule: Schedule) -> Drawing:
    """Return the schedule as an SVG document."""
    lanes = _lanes(schedule)
    answers = (len(event.answer) for event in schedule.events if event.request or event.action in REQUESTS)
    reader = lanes["Kafka"] + max(ANSWERS, 24 + LETTER * max(answers, default=0))
    most = max((len(event.sees or ()) for event in schedule.events), default=0)
    width, height = reader + max(190, most * CELL + 30), TOP + len(schedule.events) * STEP + 30
    title = f"{schedule.stage}: {schedule.anomaly or 'no anomaly'}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'role="img" aria-labelledby="title words" font-family="sans-serif" font-size="13">',
        f'<title id="title">{escape(title)}</title>',
        f'<desc id="words">{escape(str(schedule))}</desc>',
        f'<rect width="{width}" height="{height}" fill="#FFFFFF"/>',
        _text(20, 28, title, size=16, weight="bold"),
        *(_text(x, 62, name, anchor="middle", weight="bold") for name, x in lanes.items()),
        _text(reader, 62, "a reader sees", weight="bold"),
        *_life_lines(schedule, lanes, height),
    ]
    seen: tuple[int, ...] = ()
    for n, event in enumerate(schedule.events):
        y = TOP + n * STEP
        parts.append(_text(16, y + 4, str(n + 1), colour="#777777", size=11))
        parts += _step(event, y, lanes)
        seen = seen if event.sees is None else event.sees
        parts += _records(seen, reader, y, event.sees is not None)
    drawing = Drawing("\n".join([*parts, "</svg>", ""]))
    drawing.words = str(schedule)
    return drawing


def _lanes(schedule: Schedule) -> dict[str, int]:
    """Return where each actor's lane is: the supervisor's, the programs', the network's and Kafka's."""
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
    """Return the program that a step is about: who takes it, whose request is carried, or who is started."""
    return event.actor if PROGRAM.fullmatch(event.actor) else event.whose


def _life_lines(schedule: Schedule, lanes: dict[str, int], height: int) -> Iterator[str]:
    """Draw each lane: solid while the actor acts, dotted while it is asleep or gone."""
    for name, x in lanes.items():
        late = any(event.action in SUPERVISOR and event.whose == name for event in schedule.events)
        changes = [(TOP - 16, not late and name != "network")]
        for n, event in enumerate(schedule.events):
            if event.action in SUPERVISOR and event.whose == name:
                changes.append((TOP + n * STEP, True))
            elif event.actor == name and event.action in STRIKES:
                changes.append((TOP + n * STEP, event.action == "wake"))
            elif event.actor == name and event.answer not in GOOD and _is_fatal(event):
                changes.append((TOP + n * STEP, False))
        changes.append((height - 20, False))
        for (start, awake), (end, _) in itertools.pairwise(changes):
            yield _line(x, start, x, end, INK if awake else FAINT, dashes="" if awake else "2 5")


def _is_fatal(event: Event) -> bool:
    return event.action != "read marker" and not event.answer.startswith("epoch ")


def _step(event: Event, y: int, lanes: dict[str, int]) -> Iterator[str]:
    label = filled(LABELS.get(event.action, event.action), event)
    epoch = f" · epoch {event.epoch}" if event.epoch is not None and event.epoch >= 0 else ""
    driver, kafka = lanes.get(_program(event), 0), lanes["Kafka"]
    middle = lanes.get("network", kafka)
    if event.actor == "network":
        label = LABELS[event.request].format(**event._asdict())
        yield _circle(middle, y)
        if event.action == "lose":
            yield from _cross(middle, y, 8)
            yield _text(middle - 14, y + 4, f"lost: {label}{epoch}", anchor="end", colour=RED)
        else:
            again = {"deliver again": ", 1st of 2", "lose the answer": "; answer lost"}.get(event.action, "")
            yield _arrow(middle, y, kafka, y, dashes="6 3")
            yield _text(middle - 14, y + 4, f"{label} of {event.whose}{epoch} arrives{again}", anchor="end")
            yield from _answer(event, kafka, y)
            if event.action == "lose the answer":
                yield from _cross(kafka, y, 8)
    elif event.action in REQUESTS:
        held = event.answer == HELD
        yield _arrow(driver, y, middle - 6 if held else kafka, y)
        yield _text(driver + 10, y - 7, label + epoch, colour=BLUE)
        yield _circle(middle, y) if held else ""
        yield from _answer(event, middle + 12 if held else kafka, y)
    elif event.action == "crash":
        yield from _cross(driver, y, 9)
        yield _text(driver + 16, y + 4, label, colour=RED, weight="bold")
    else:
        x = kafka if event.actor == "broker" else driver
        colour = RED if event.actor == "broker" or event.answer not in GOOD else INK
        if event.actor == "supervisor":
            yield _arrow(lanes["supervisor"], y, x - 4, y, INK)
        yield f'<circle cx="{x}" cy="{y}" r="4" fill="{colour}"/>'
        answer = f": {event.answer}" if event.answer else ""
        yield _text(x + 12, y + 4, label + answer, colour=colour)


def _answer(event: Event, x: int, y: int) -> Iterator[str]:
    if event.answer not in ("", "ok"):
        yield _text(x + 8, y + 4, event.answer, size=12, colour=RED if event.answer == "fenced" else INK)


def _records(seen: tuple[int, ...], x: int, y: int, changed: bool) -> Iterator[str]:
    """Draw what the reader sees: a box for each record, in the order of the topic; a repeated one stands out."""
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


def _text(
    x: int, y: int, text: str, *, anchor: str = "start", size: int = 13, colour: str = INK, weight="normal"
) -> str:
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}" fill="{colour}" font-weight="{weight}" '
        f'paint-order="stroke" stroke="#FFFFFF" stroke-width="4">{escape(text)}</text>'
    )


def _line(x1: int, y1: int, x2: int, y2: int, colour: str, width: float = 1.5, dashes: str = "") -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}" stroke-width="{width}"{dashed}/>'


def _arrow(x1: int, y1: int, x2: int, y2: int, colour: str = BLUE, dashes: str = "") -> str:
    head = f'<path d="M {x2} {y2} l -9 -5 v 10 z" fill="{colour}"/>'
    return _line(x1, y1, x2 - 6, y2, colour, dashes=dashes) + head


def _circle(x: int, y: int) -> str:
    return f'<circle cx="{x}" cy="{y}" r="6" fill="#FFFFFF" stroke="{BLUE}" stroke-width="1.5"/>'


def _cross(x: int, y: int, size: int) -> Iterator[str]:
    yield _line(x - size, y - size, x + size, y + size, RED, width=3)
    yield _line(x - size, y + size, x + size, y - size, RED, width=3)
