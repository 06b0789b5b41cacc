"""The room as a still picture: its verdict, the end of its log, and the strikes.

`moving_picture` makes one animated picture from a recording, for pages that run no script, such as a repository's first
page.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from textwrap import shorten
from typing import Any

from labs.room.recording import states
from labs.room.state import NUMBERS, VERDICTS, State, driver_in_words, in_words, report_in_words, strike_in_words
from labs.schedules.svg import (
    BLUE,
    DARK_RED,
    FAINT,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE,
    RED,
    Drawing,
    box,
    document,
    line,
    text,
)

WIDTH, LEFT, CELL, TALL, COLUMNS, LINES = 980, 16, 39, 34, 24, 2  # pixels; cells of the log and their lines
STRIKES, LONGEST = 6, 130  # how many strikes are shown, and the characters of each
COPY = "#FBE3B0"  # the background of a record that is a copy
WORD_COLOURS = {"valid": "#00694C", "invalid": DARK_RED, "unknown": GREY}
EDGES = {"plain": BLUE, "open": BLUE, "committed": GREEN, "aborted": RED}
FILLS = {"plain": "#E5F1F8", "open": "#FFFFFF", "committed": "#D5EFE6", "aborted": PALE}


def picture(state: dict[str, Any]) -> Drawing:
    """Return the picture of a state, with a description in words."""
    return sheet(state, *drawn(state))


def sheet(state: dict[str, Any], height: int, parts: Iterable[str]) -> Drawing:
    """Return a picture of `height` pixels made of `parts`, with the state's description in words."""
    return document(WIDTH, height, "The operations room", in_words(state), parts, size=14)


def drawn(state: dict[str, Any]) -> tuple[int, list[str]]:
    """Return the height of a state's picture in pixels, and its parts as SVG."""
    log_height = LINES * (TALL + 16) + 40
    strikes = state["chronicle"][-STRIKES:]
    height = 190 + log_height + 22 * max(1, len(strikes)) + (26 if state["report"] else 0)
    return height, [*_head(state), *_log(state["log"], 128), *_foot(state, strikes, 128 + log_height)]


def _head(state: dict[str, Any]) -> Iterator[str]:
    verdict, stage = state["verdict"], state["stage"]
    sign, word = VERDICTS[verdict["word"]]
    yield text(LEFT, 24, f"The operations room · {stage['name']} · {state['time']:.0f} s", colour=GREY)
    yield text(LEFT, 66, f"{sign} {word}", size=34, weight="bold", colour=WORD_COLOURS[verdict["word"]])
    for n, name in enumerate(NUMBERS):
        weight = "bold" if verdict[name] else "normal"
        yield text(LEFT + 210 + n * 122, 60, str(verdict[name]), size=22, weight=weight, colour=INK)
        yield text(LEFT + 210 + n * 122, 78, name, colour=GREY)
    lives = [driver_in_words(each) for each in state["drivers"]]
    yield text(LEFT, 104, shorten("; ".join(lives) or "no driver", LONGEST, placeholder=" …"), size=14)


def _log(log: dict[str, Any], top: int) -> Iterator[str]:
    """Draw the last lines of the log by offset, each epoch where it begins, and the last stable offset."""
    first = max(0, log["end"] // COLUMNS - LINES + 1)

    def place(offset: int) -> tuple[int, int]:
        return LEFT + offset % COLUMNS * CELL, top + 30 + (offset // COLUMNS - first) * (TALL + 20)

    yield text(LEFT, top + 8, f"the log of the sink's topic, from offset {first * COLUMNS}", colour=GREY)
    epoch = None
    for entry in log["entries"]:
        if entry["offset"] < first * COLUMNS:
            continue
        x, y = place(entry["offset"])
        yield from _cell(entry, x, y)
        if entry["kind"] == "row" and entry["epoch"] not in (epoch, None, -1):  # -1: Kafka has no producer's id
            epoch = entry["epoch"]
            yield text(x, y - 3, f"epoch {epoch}", size=11, colour=GREY)
    x, y = place(max(log["stable"], first * COLUMNS))
    yield line(x - 3, y - 3, x - 3, y + TALL + 3, INK, width=3)
    right = x > WIDTH * 0.7
    yield text(x - 8 if right else x + 2, y + TALL + 13, f"last stable offset {log['stable']}", size=11,
               weight="bold", anchor="end" if right else "start")  # fmt: skip


def _cell(entry: dict[str, Any], x: int, y: int) -> Iterator[str]:
    middle, control = x + CELL // 2 - 3, entry["kind"] in ("commit", "abort")
    edge = ORANGE if entry["copy"] else EDGES[entry["state"]]
    if control:
        colour = WORD_COLOURS["valid" if entry["kind"] == "commit" else "invalid"]
        yield text(middle, y + 23, "C" if entry["kind"] == "commit" else "A", anchor="middle", size=17, colour=colour,
                   weight="bold")  # fmt: skip
        return
    dashes = "4 3" if entry["state"] == "open" else ""
    fill = COPY if entry["copy"] else FILLS[entry["state"]]
    yield box(x, y, CELL - 6, TALL, fill=fill, edge=edge, dashes=dashes)
    known = entry["count"] is not None
    yield text(middle, y + 15, str(entry["count"]) if known else "·", anchor="middle", size=13, weight="bold")
    client = f".{entry['ip'].rpartition('.')[2]}" if entry["ip"] else ""
    yield text(middle, y + 29, client + (" 2×" if entry["copy"] else ""), anchor="middle", size=11, colour=GREY)
    if entry["state"] == "aborted":
        yield line(x, y + TALL, x + CELL - 6, y, RED, width=2)


def _foot(state: dict[str, Any], strikes: list[dict[str, Any]], top: int) -> Iterator[str]:
    readers = state["readers"]
    said = f"read_committed sees {readers['committed']} results, read_uncommitted {readers['uncommitted']}"
    yield text(LEFT, top + 18, said, size=14, weight="bold")
    yield line(LEFT, top + 30, WIDTH - LEFT, top + 30, FAINT)
    y = top + 52
    for strike in strikes:
        told = shorten(strike_in_words(strike), LONGEST, placeholder=" …")
        yield text(LEFT, y, told, size=14, first=str(strike["number"]))
        y += 22
    if not strikes:
        yield text(LEFT, y, "nothing was struck", size=14, colour=GREY)
        y += 22
    if state["report"]:
        colour = WORD_COLOURS[state["report"]["verdict"]]
        yield text(
            LEFT, y + 4, f"final report: {report_in_words(state['report'])}", size=14, weight="bold", colour=colour
        )


PICTURES, SECONDS, REST = 30, 24.0, 3.0  # SECONDS for all pictures together; the last one stays REST seconds longer


def moving_picture(recording: dict[str, Any], pictures: int = PICTURES, seconds: float = SECONDS) -> Drawing:
    """Return the recording as an animated SVG, which shows so many pictures in turn, again and again.

    With `prefers-reduced-motion` it shows only the last one. The description is that of the last one.
    """
    moments = list(_moments(recording, pictures))
    stills = [drawn(state) for state in moments]
    layers = ["\n".join([f'<g class="f f{n}">', *parts, "</g>"]) for n, (_, parts) in enumerate(stills)]
    return sheet(moments[-1], max(height for height, _ in stills), [_style(len(stills), seconds), *layers])


def _moments(recording: dict[str, Any], pictures: int) -> Iterator[State]:
    """Yield the state at so many equally distant moments, the last of them at the end."""
    times, known = zip(*states(recording), strict=True)
    for n in range(1, pictures + 1):
        moment = times[0] + (times[-1] - times[0]) * n / pictures
        yield known[bisect_right(times, moment) - 1]


def _style(pictures: int, seconds: float) -> str:
    whole = seconds + REST
    share, each = 100 * seconds / whole / pictures, seconds / pictures
    rules = [f".f{n}{{animation-delay:{n * each:.2f}s}}" for n in range(pictures - 1)]
    return (
        f"<style>.f{{visibility:hidden;animation:f {whole:g}s step-end infinite}}{''.join(rules)}"
        f".f{pictures - 1}{{animation:l {whole:g}s step-end infinite}}"
        f"@keyframes f{{0%{{visibility:visible}}{share:.3f}%{{visibility:hidden}}}}"
        f"@keyframes l{{0%{{visibility:hidden}}{share * (pictures - 1):.3f}%{{visibility:visible}}}}"
        f"@media(prefers-reduced-motion:reduce){{.f{{animation:none}}.f{pictures - 1}{{animation:none;"
        "visibility:visible}}</style>"
    )
