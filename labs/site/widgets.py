"""The scripts that make a page's pictures live: which it needs, and where they go."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from bs4 import BeautifulSoup

from labs.room import publish as room
from labs.room.view import STILL as ROOM
from labs.schedules import barrier_steps as barrier
from labs.schedules.barrier_steps import STILL as BARRIER
from labs.schedules.timeline import publish as timeline
from labs.schedules.timeline.timeline import STILL as TIMELINE

FOLDER = "recordings"
# Of each script that makes pictures live by itself: what those pictures carry, and how it is made.
EXPLORABLES: dict[str, tuple[str, Callable[[], str]]] = {
    "timeline.js": (TIMELINE, timeline.script),
    "barrier.js": (BARRIER, barrier.script),
}


def scripts_of(body: str) -> list[str]:
    """Return the scripts that a page needs, in their order, as paths below the site."""
    soup = BeautifulSoup(body, "html.parser")
    needed = [name for name, (still, _) in EXPLORABLES.items() if soup.select_one(f"img[{still}]")]
    names = [json.loads(str(still[ROOM])).get("recording") for still in soup.select(f"img[{ROOM}]")]
    needed += [f"{FOLDER}/{name}.js" for name in dict.fromkeys(filter(None, names))]
    return [*needed, "room.js"] if names else needed


def write_scripts(target: Path, needed: set[str], root: Path) -> None:
    """Write those of the scripts that some page needs. Raises ValueError for a recording that is not there."""
    made = {name: script for name, (_, script) in EXPLORABLES.items()} | {"room.js": room.script}
    for name, text in _texts(needed, made, root):
        path = target / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _texts(needed: set[str], made: dict[str, Callable[[], str]], root: Path) -> Iterator[tuple[str, str]]:
    for name in sorted(needed):
        yield name, made[name]() if name in made else room.recording_script(Path(name).stem, root)
