"""The timeline on a published page: a script that makes the pictures of timelines there live, without a kernel.

A page from a file system may load scripts and no modules, so the widget's module is made a script; its data come with
it, and nothing else is asked for.
"""

from __future__ import annotations

import json

from labs.schedules.timeline.data import timeline_data
from labs.schedules.timeline.timeline import HERE, STILL

EXPORT = "export default { render };\n"
SCRIPT = """// Made from timeline.js and its data: each picture of a timeline on the page becomes one that can be used.
(() => {{
"use strict";
{module}
const data = {data};
const style = document.createElement("style");
style.textContent = {style};
document.head.append(style);
for (const still of document.querySelectorAll("img[{attribute}]")) {{
  const traits = {{ data, ...JSON.parse(still.getAttribute("{attribute}")) }};
  const model = {{
    get: (key) => traits[key],
    set: (key, value) => {{ traits[key] = value; }},
    on() {{}},
    off() {{}},
    save_changes() {{}},
  }};
  const el = document.createElement("div");
  render({{ model, el }});
  still.replaceWith(el);
}}
}})();
"""


def script() -> str:
    """Return the script for a page."""
    module = HERE.joinpath("timeline.js").read_text(encoding="utf-8")
    assert module.endswith(EXPORT)
    return SCRIPT.format(
        module=module.removesuffix(EXPORT),
        data=json.dumps(timeline_data(), ensure_ascii=False, separators=(",", ":")),
        style=json.dumps(HERE.joinpath("timeline.css").read_text(encoding="utf-8")),
        attribute=STILL,
    )
