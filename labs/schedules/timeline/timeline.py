"""The explorable timeline: drag a crash along two batches, switch mechanisms on and off, and see what a reader sees.

    timeline("at least once")           # opens with the switches of this stage; you can turn every one

The model worked out beforehand all that it can show, and the widget's data contain it: the browser decides nothing,
fetches nothing, and needs no kernel. Where no widget can be shown, a picture and words are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from textwrap import wrap
from typing import Any

import anywidget
import traitlets

from labs.schedules.publish import live_picture, live_pictures, style_of, with_still
from labs.schedules.svg import BLUE, FAINT, GREY, INK, ORANGE, PALE_BLUE, RED, Drawing, box, cross, document, line, text
from labs.schedules.timeline.two_batches import (
    BATCHES,
    CRASH,
    FAULTS,
    LABELS,
    LOST_ACKNOWLEDGEMENT,
    PLACES,
    PRESETS,
    ROWS,
    STATIONS,
    Course,
    Switches,
    course_of,
    every_switching,
)
from labs.schedules.timeline.words import explanation, judge, seen_by_reader, steps_of

# The data: each combination of switches, fault and place

FAULT_LABELS = {CRASH: "the job crashes", LOST_ACKNOWLEDGEMENT: "an acknowledgement is lost"}
FILES = {"plan": "offsets/", "note": "commits/"}  # where a step leaves a file, whose name is the batch's number


@cache
def timeline_data() -> dict[str, Any]:
    """Return all that the timeline can show, as plain data. `cases[fault][switches][place]` is an outcome's number.

    Equal outcomes and texts are kept once, so that the data are small enough for a notebook.
    """
    texts, outcomes = Numbered(), Numbered()
    cases: dict[str, dict[str, list[int]]] = {fault: {} for fault in FAULTS}
    for switches in every_switching():
        for fault in FAULTS:
            courses = [course_of(switches, fault, place) for place in range(len(PLACES))]
            cases[fault][switches.key] = [outcomes.number(_outcome(each, switches, texts)) for each in courses]
    return {
        "batches": BATCHES,
        "rows": ROWS,
        "stations": [{"name": name, "file": FILES.get(name, "")} for name in STATIONS],
        "places": [{"at": place.at, "name": place.name, "batch": place.batch} for place in PLACES],
        "switches": [{"key": key, "label": label, "hint": hint} for key, (label, hint) in LABELS.items()],
        "faults": [{"key": fault, "label": FAULT_LABELS[fault], "stops": fault == CRASH} for fault in FAULTS],
        "settings": {switches.key: _setting(switches) for switches in every_switching()},
        "cases": cases,
        "outcomes": list(outcomes),
        "texts": list(texts),
    }


def _setting(switches: Switches) -> dict[str, Any]:
    """Return what is on in effect, which switches change nothing, and which steps do not exist."""
    on = switches.effective
    idle = [switch for switch, without in (("latest", on.checkpoint), ("idempotence", on.transaction)) if without]
    absent = {"begin": not (on.transaction or on.marker), "marker": not on.marker, "commit": not on.transaction}
    return {"on": on.key, "idle": idle, "absent": [station for station, gone in absent.items() if gone]}


def _outcome(course: Course, switches: Switches, texts: Numbered) -> tuple[Any, ...]:
    """Return (sight at the fault, sight in the end, why, steps), with numbers for texts.

    A sight is (records seen, verdict in words, whether it is wrong). A step is (words, records seen), or (words,) if
    the reader sees what it saw before.
    """
    steps: list[tuple[Any, ...]] = []
    before = None
    for words, state in steps_of(course):
        seen = seen_by_reader(state, switches.read_committed)
        steps.append((texts.number(words), seen) if seen != before else (texts.number(words),))
        before = seen
    sights = []
    for state, at_the_end in ((course.broken, False), (course.end, True)):
        seen = seen_by_reader(state, switches.read_committed)
        verdict = judge(seen)
        sights.append((seen, texts.number(verdict.words(at_the_end)), verdict.is_wrong(at_the_end)))
    return *sights, texts.number(explanation(course, switches)), tuple(steps)


class Numbered(dict[Any, int]):
    """Different values, each with its number, in the order in which they came."""

    def number(self, value: Any) -> int:
        return self.setdefault(value, len(self))


# One case as a picture and in words

TITLE = "Two batches, and where it goes wrong"
LEFT, STEP, TOP, TALL, CHIP = 10, 60, 92, 44, 26  # pixels; a step's width, the steps' top and height, a record's width


def still(data: dict[str, Any], fault: str, key: str, place: int, shown: Sequence[str]) -> Drawing:
    """Return the picture of the case, and the switches `shown`."""
    words = in_words(data, fault, key, place, shown)
    return document(980, 330, TITLE, words, _parts(data, fault, key, place), size=14)


def in_words(data: dict[str, Any], fault: str, key: str, place: int, shown: Sequence[str]) -> str:
    """Return the case in words, with the switches `shown` and all others that are on."""
    (at, at_words, _), (end, end_words, _), because, steps = data["outcomes"][data["cases"][fault][key][place]]
    texts, on = data["texts"], data["settings"][key]["on"]
    names = [
        f"{each['label']} {'on' if bit == '1' else 'off'}"
        for each, bit in zip(data["switches"], on, strict=True)
        if bit == "1" or each["key"] in shown
    ]
    what = next(each["label"] for each in data["faults"] if each["key"] == fault)
    lines = [
        f"{data['places'][place]['name']}: {what}.",
        ", ".join(names) + ".",
        f"Then a reader sees {_list(at)}: {texts[at_words]}.",
        *(f"{n}. {texts[step[0]]}" for n, step in enumerate(steps, 1)),
        f"In the end a reader sees {_list(end)}: {texts[end_words]}.",
        texts[because],
    ]
    return "\n".join(lines)


def _list(seen: Sequence[int]) -> str:
    return ", ".join(f"{record}{' again' if record in seen[:n] else ''}" for n, record in enumerate(seen)) or "nothing"


def _parts(data: dict[str, Any], fault: str, key: str, place: int) -> Iterator[str]:
    (at, at_words, _), (end, end_words, _), because, _ = data["outcomes"][data["cases"][fault][key][place]]
    texts, setting = data["texts"], data["settings"][key]
    yield text(LEFT, 26, TITLE, size=17, weight="bold")
    on = [each["label"] for n, each in enumerate(data["switches"]) if setting["on"][n] == "1"]
    yield text(LEFT, 52, "on: " + (", ".join(on) or "nothing"), size=14)
    x = LEFT
    for batch in range(data["batches"]):
        yield text(x, TOP - 8, f"batch {batch}", size=14, weight="bold")
        for station in data["stations"]:
            name, file = station["name"], station["file"] and f"{station['file']}{batch}"
            gone = name in setting["absent"]
            yield box(x, TOP, STEP - 4, TALL, fill="#FFFFFF" if gone else PALE_BLUE, edge=FAINT if gone else BLUE)
            middle, colour = x + STEP // 2 - 2, GREY if gone else INK
            yield text(middle, TOP + (20 if file else 27), name, anchor="middle", size=12, colour=colour)
            yield text(middle, TOP + 36, file, anchor="middle", size=11, colour=colour) if file else ""
            x += STEP
    where = round(LEFT - 2 + data["places"][place]["at"] * STEP * len(data["stations"]) * data["batches"])
    yield line(where, TOP - 10, where, TOP + TALL + 10, RED, width=3)
    yield from cross(where, TOP + TALL + 18, 9)
    y = TOP + TALL + 56
    for label, seen, words in (("then", at, at_words), ("in the end", end, end_words)):
        yield text(LEFT, y, f"{label}, a reader sees", size=14)
        for n, record in enumerate(seen):
            again = record in seen[:n]
            yield box(LEFT + 190 + n * CHIP, y - 16, CHIP - 4, 22, fill="#FFFFFF", edge=ORANGE if again else BLUE)
            weight = "bold" if again else "normal"
            yield text(LEFT + 201 + n * CHIP, y, str(record), anchor="middle", size=13, weight=weight)
        yield text(LEFT + 190, y + 24, texts[words], size=14, weight="bold")
        y += 56
    for row in wrap(texts[because], 110):
        yield text(LEFT, y, row, size=14)
        y += 20


# The widget

HERE = Path(__file__).parent
STILL = "data-timeline"  # the attribute of a picture that a published page makes live
PLACE = next(n for n, place in enumerate(PLACES) if place.batch == 1 and place.station == "commit")


class Timeline(anywidget.AnyWidget):
    """The widget. `switches` has 0 or 1 for each switch, in their order; `place` is the number of a place."""

    _esm = HERE / "timeline.js"
    _css = style_of(HERE / "timeline.css")
    data = traitlets.Dict().tag(sync=True)
    shown = traitlets.List(traitlets.Unicode()).tag(sync=True)
    switches = traitlets.Unicode().tag(sync=True)
    fault = traitlets.Unicode(CRASH).tag(sync=True)
    place = traitlets.Int(PLACE).tag(sync=True)

    def still(self) -> Drawing:
        """Return a picture of the case that is shown now."""
        return still(self.data, self.fault, self.switches, self.place, self.shown)

    def in_words(self) -> str:
        """Return the case that is shown now, in words."""
        return in_words(self.data, self.fault, self.switches, self.place, self.shown)

    def __repr__(self) -> str:
        return self.in_words()

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        traits = {name: getattr(self, name) for name in ("shown", "switches", "fault", "place")}
        html = live_picture(self.still(), STILL, traits)
        return with_still(super()._repr_mimebundle_(**kwargs), self.in_words(), html)


def timeline(
    stage: str = "the sink",
    *,
    place: int | str = "after_commit",
    fault: str = CRASH,
    only: tuple[str, ...] | list[str] = tuple(LABELS),
) -> Timeline:
    """Return the timeline with the switches of a stage of the course, and the fault at a fault point of batch 1.

    `stage` is one of PRESETS; `place` a fault point, or the number of a place; `only` names the switches to be shown.
    """
    if stage not in PRESETS:
        raise ValueError(f"there is no stage {stage!r}; there are: {', '.join(PRESETS)}")
    if fault not in FAULTS:
        raise ValueError(f"there is no fault {fault!r}; there are: {', '.join(FAULTS)}")
    if unknown := [each for each in only if each not in LABELS]:
        raise ValueError(f"there is no switch {unknown[0]!r}; there are: {', '.join(LABELS)}")
    places = {point: n for n, each in enumerate(PLACES) for point in each.points}
    number = places.get(place, -1) if isinstance(place, str) else place
    if not 0 <= number < len(PLACES):
        raise ValueError(f"there is no place {place!r}; there are 0 to {len(PLACES) - 1} and {', '.join(places)}")
    return Timeline(data=timeline_data(), shown=list(only), switches=PRESETS[stage].key, fault=fault, place=number)


def script() -> str:
    """Return the script for a published page: module, style and data."""
    module = (HERE / "timeline.js").read_text(encoding="utf-8")
    return live_pictures(module, style_of(HERE / "timeline.css"), STILL, {"data": timeline_data()})
