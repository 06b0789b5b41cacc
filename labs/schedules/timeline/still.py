"""The timeline standing still: a picture of one combination, and the same in words, where no widget can be shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Any

from labs.schedules.svg import BLUE, FAINT, GREY, INK, ORANGE, RED, Drawing, box, cross, document, line, text

WIDTH, LEFT, STEP, TOP, TALL = 980, 10, 60, 92, 44  # pixels; a step's width, the steps' top and height
CHIP = 26


def still(data: dict[str, Any], fault: str, key: str, place: int, shown: Sequence[str]) -> Drawing:
    """Return the picture of the case, and the switches `shown`."""
    parts = [*_parts(data, fault, key, place)]
    height = 330
    title = "Two batches, and where it goes wrong"
    return document(WIDTH, height, title, in_words(data, fault, key, place, shown), parts, size=14)


def in_words(data: dict[str, Any], fault: str, key: str, place: int, shown: Sequence[str]) -> str:
    """Return the case in words; of the switches those `shown`, and what else is on."""
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
    yield text(LEFT, 26, "Two batches, and where it goes wrong", size=17, weight="bold")
    on = [each["label"] for n, each in enumerate(data["switches"]) if setting["on"][n] == "1"]
    yield text(LEFT, 52, "on: " + (", ".join(on) or "nothing"), size=14)
    x = LEFT
    for batch in range(data["batches"]):
        yield text(x, TOP - 8, f"batch {batch}", size=14, weight="bold")
        for station in data["stations"]:
            name, file = station["name"], station["file"] and f"{station['file']}{batch}"
            gone = name in setting["absent"]
            yield box(x, TOP, STEP - 4, TALL, fill="#FFFFFF" if gone else "#E5F1F8", edge=FAINT if gone else BLUE)
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
