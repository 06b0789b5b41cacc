"""The view without a kernel: a script for the pictures of a published page, and a page of its own for a recording.

Guarantee: neither loads anything, and no text of a recording becomes HTML or a script.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from labs.room.state import empty_state, words
from labs.schedules.publish import live_pictures

HERE = Path(__file__).parent / "browser"
# Parts of one module, in this order: later ones use names that earlier ones define.
PARTS = ("dom.js", "top.js", "processes.js", "log.js", "work.js", "strikes.js", "player.js", "view.js")
PREFIX = "now_"  # a prefix, since every widget already has a trait named `log`
RECORDINGS = "docs/recordings"  # the folder of the recordings that pages name
TABLE = "ROOM_RECORDINGS"
# A picture carries the name of a recording, or a state.
BEFORE = f"""traits.recording = globalThis.{TABLE}?.[traits.recording] ?? null;
  if (!traits.recording && !traits.state) continue;
  for (const [key, empty] of Object.entries({json.dumps(empty_state())}))
    traits["{PREFIX}" + key] = traits.state?.[key] ?? empty; // an older state has fewer keys"""
STILL = "data-room"  # what a picture carries, so that a published page can make it live again


# A page of its own for a recording: it loads nothing.
PAGE = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>:root {{ --eo-height: 100vh; color-scheme: light dark; }} body {{ margin: 0; }} {style}</style></head>
<body><div id="room"></div>
<script type="module">
{module}
const traits = {traits};
render({{ model: {{ get: (key) => traits[key], on() {{}}, off() {{}} }}, el: document.getElementById("room") }});
</script></body></html>
"""


def module() -> str:
    """Return the view's JavaScript."""
    return "\n".join(HERE.joinpath(part).read_text(encoding="utf-8") for part in PARTS)


def view_script() -> str:
    """Return the script that makes the pictures of a published page live."""
    style = HERE.joinpath("view.css").read_text(encoding="utf-8")
    return live_pictures(module(), style, STILL, {"words": words(), "live": False}, BEFORE)


def recording_script(name: str, root: Path) -> str:
    """Return the script of a recording below `root`. Raises ValueError if no recording has this name.

    It is a script, since a page from a file system may not fetch JSON. A page loads it before `view_script`.
    """
    path = root / RECORDINGS / f"{name}.json"
    if not path.is_file():
        raise ValueError(f"a page plays the recording {name!r}, and there is no {RECORDINGS}/{name}.json")
    recording = json.loads(path.read_text(encoding="utf-8"))
    text = json.dumps(recording, ensure_ascii=False, separators=(",", ":"))
    return f"(globalThis.{TABLE} ??= {{}})[{json.dumps(name)}] = {text};\n"


def recording_page(recording: Mapping[str, Any]) -> str:
    """Return a recording as one HTML page that plays it in any browser, without a kernel or a network."""
    traits = json.dumps({"words": words(), "live": False, "recording": recording}, ensure_ascii=False)
    style = HERE.joinpath("view.css").read_text(encoding="utf-8")
    title, traits = escape(recording["title"]), traits.replace("<", "\\u003c")  # no text may end the script
    return PAGE.format(title=title, style=style, module=module(), traits=traits)
