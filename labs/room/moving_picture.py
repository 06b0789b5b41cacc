"""A recording as one picture that moves by itself, for where only pictures are shown: a repository's first page."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

from labs.room.picture import drawn, sheet
from labs.room.recording import states
from labs.room.state import State
from labs.schedules.svg import Drawing

PICTURES, SECONDS, REST = 30, 24.0, 3.0  # how many, how long all of them are shown, and the last one once more


def moving_picture(recording: dict[str, Any], pictures: int = PICTURES, seconds: float = SECONDS) -> Drawing:
    """Return the recording as an SVG of so many pictures, which are shown in turn, over and over.

    Who asked for less motion sees the last one only. The words are those of the last one.
    """
    moments = list(_moments(recording, pictures))
    stills = [drawn(state) for state in moments]
    layers = ["\n".join([f'<g class="f f{n}">', *parts, "</g>"]) for n, (_, parts) in enumerate(stills)]
    return sheet(moments[-1], max(height for height, _ in stills), [_style(len(stills), seconds), *layers])


def _moments(recording: dict[str, Any], pictures: int) -> Iterator[State]:
    """Yield the state at moments that are equally far apart, the last one too."""
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
