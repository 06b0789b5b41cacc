"""A recording as one picture that moves by itself, for where only pictures are shown: a repository's first page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from labs.room.picture import picture
from labs.schedules.svg import Drawing

PICTURES, SECONDS, REST = 30, 24.0, 3.0  # how many, how long all of them are shown, and the last one once more


def moving_picture(recording: dict[str, Any], pictures: int = PICTURES, seconds: float = SECONDS) -> Drawing:
    """Return the recording as an SVG of so many pictures, which are shown in turn, over and over.

    Who asked for less motion sees the last one only. The words are those of the last one.
    """
    states = list(_states(recording, pictures))
    stills = [picture(state) for state in states]
    tallest = max(stills, key=_height)
    head, rect = tallest[: tallest.index("<title")], '<rect width="100%" height="100%" fill="#FFFFFF"/>'
    last = stills[-1]
    named = last[last.index("<title") : last.index("</desc>") + len("</desc>")]
    layers = [f'<g class="f f{n}">{_body(still)}</g>' for n, still in enumerate(stills)]
    drawing = Drawing("\n".join([head + named, _style(len(stills), seconds), rect, *layers, "</svg>", ""]))
    drawing.words = last.words
    return drawing


def _height(still: Drawing) -> int:
    """Return a picture's height."""
    return int(still.split('height="', 1)[1].split('"', 1)[0])


def _body(still: Drawing) -> str:
    start = still.index("/>", still.index("</desc>")) + len("/>")  # behind the white sheet
    return still[start : still.rindex("</svg>")].strip()


def _states(recording: dict[str, Any], pictures: int) -> Iterator[dict[str, Any]]:
    """Yield the state at moments that are equally far apart, the last one too."""
    frames, state = iter(recording["frames"]), dict[str, Any]()
    begun, ended = recording["frames"][0][0], recording["frames"][-1][0]
    ahead = next(frames)
    for n in range(1, pictures + 1):
        moment = begun + (ended - begun) * n / pictures
        while ahead and ahead[0] <= moment:
            state = {**state, **ahead[1]}
            ahead = next(frames, None)
        yield state


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
