"""A widget on a published page: a script that makes its pictures live, without a kernel.

A page from a file system may load scripts but no modules, so the widget's module becomes a script. It contains its
data, and fetches nothing. An attribute of each picture has the widget's traits as JSON.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

from labs.schedules.svg import Drawing

THEME = Path(__file__).parent / "explorable.css"

EXPORT = "export default { render };\n"
SCRIPT = """// Made from a widget's module: each picture on the page with {attribute} becomes one that can be used.
(() => {{
"use strict";
{module}
const shared = {shared};
const style = document.createElement("style");
style.textContent = {style};
document.head.append(style);
for (const still of document.querySelectorAll("img[{attribute}]")) {{
  const traits = {{ ...shared, ...JSON.parse(still.getAttribute("{attribute}")) }};
  {before}
  const model = {{
    get: (key) => traits[key],
    set: (key, value) => {{ traits[key] = value; }},
    on() {{}},
    off() {{}},
    save_changes() {{}},
  }};
  const el = document.createElement("div");
  still.replaceWith(el);
  render({{ model, el }});
}}
}})();
"""


def style_of(file: Path) -> str:
    """Return the style of an explorable: the shared one, which is light or dark as the page is, and its own."""
    return THEME.read_text(encoding="utf-8") + file.read_text(encoding="utf-8")


def live_picture(picture: Drawing, attribute: str, traits: dict[str, Any]) -> str:
    """Return the HTML of a picture that a published page makes live with these traits."""
    carried = escape(json.dumps(traits, ensure_ascii=False))
    return picture._repr_html_().replace("<img ", f'<img {attribute}="{carried}" ', 1)


def with_still(shown: Any, words: str, html: str) -> Any:
    """Return what a widget shows (`_repr_mimebundle_`), and words and a picture for a page without widgets."""
    bundle, *metadata = shown if isinstance(shown, tuple) else (shown,)
    bundle = {**(bundle or {}), "text/plain": words, "text/html": html}
    return (bundle, *metadata) if metadata else bundle


def live_pictures(module: str, style: str, attribute: str, shared: dict[str, Any], before: str = "") -> str:
    """Return the script for a page. `shared` are traits of all pictures; the code `before` may add traits to one."""
    assert module.endswith(EXPORT)
    return SCRIPT.format(
        module=module.removesuffix(EXPORT),
        shared=json.dumps(shared, ensure_ascii=False, separators=(",", ":")),
        style=json.dumps(style),
        attribute=attribute,
        before=before,
    )
