"""The room on a published page: one script for its view, and one for each recording that a page plays.

A recording is a script too, since a page from a file system may not fetch anything; it is loaded before the view.
"""

from __future__ import annotations

import json
from pathlib import Path

from labs.room.state import KEYS
from labs.room.view import HERE, PREFIX, STILL, module
from labs.room.words import words
from labs.schedules.publish import live_pictures

RECORDINGS = "docs/recordings"  # where those lie that pages name
TABLE = "ROOM_RECORDINGS"
# A picture carries the name of a recording, or a state.
BEFORE = f"""traits.recording = globalThis.{TABLE}?.[traits.recording] ?? null;
  if (!traits.recording && !traits.state) continue;
  for (const key of {json.dumps(KEYS)}) traits["{PREFIX}" + key] = traits.state?.[key];"""


def script() -> str:
    """Return the script of the view."""
    style = HERE.joinpath("view.css").read_text(encoding="utf-8")
    return live_pictures(module(), style, STILL, {"words": words(), "live": False}, BEFORE)


def recording_script(name: str, root: Path) -> str:
    """Return the script of a recording that lies below `root`. Raises ValueError if there is none of this name."""
    path = root / RECORDINGS / f"{name}.json"
    if not path.is_file():
        raise ValueError(f"a page plays the recording {name!r}, and there is no {RECORDINGS}/{name}.json")
    recording = json.loads(path.read_text(encoding="utf-8"))
    text = json.dumps(recording, ensure_ascii=False, separators=(",", ":"))
    return f"(globalThis.{TABLE} ??= {{}})[{json.dumps(name)}] = {text};\n"
