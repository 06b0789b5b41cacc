"""Builds the course as static pages: from committed lessons and docs alone, without a kernel, a network or a server.

Guarantee: the pages work from a file system and below any path, and ask no other host for anything. A page loads the
scripts that make its pictures live. Limitations: a page shows the committed outputs of a lesson; nothing is executed.

Why no site generator is used: Jupyter Book 2 gets its theme from a server when it builds, and needs Node. Jupyter
Book 1 is no longer developed, and its pages load scripts from another host. Neither has questions, answers that stay
hidden until the reader has predicted, or live pictures.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bs4 import BeautifulSoup
from jinja2 import Environment, FileSystemLoader
from pygments.formatters import HtmlFormatter

from labs.room.published import STILL as ROOM
from labs.room.published import recording_script, view_script
from labs.schedules import barrier_steps as barrier
from labs.schedules.barrier_steps import STILL as BARRIER
from labs.schedules.timeline import timeline
from labs.schedules.timeline.timeline import STILL as TIMELINE
from labs.site.pages import GROUPS, Page, find_pages, targets_of
from labs.site.render import Rendered, render

FOLDER = "recordings"
# Script -> the attribute of the pictures that it makes live, and the function that writes it.
EXPLORABLES: dict[str, tuple[str, Callable[[], str]]] = {
    "timeline.js": (TIMELINE, timeline.script),
    "barrier.js": (BARRIER, barrier.script),
}


def scripts_of(body: str) -> list[str]:
    """Return the scripts that a page needs, in loading order, as paths below the site."""
    soup = BeautifulSoup(body, "html.parser")
    needed = [name for name, (still, _) in EXPLORABLES.items() if soup.select_one(f"img[{still}]")]
    names = [json.loads(str(still[ROOM])).get("recording") for still in soup.select(f"img[{ROOM}]")]
    needed += [f"{FOLDER}/{name}.js" for name in dict.fromkeys(filter(None, names))]
    return [*needed, "room.js"] if names else needed


def write_scripts(target: Path, needed: set[str], root: Path) -> None:
    """Write the scripts that some page needs. Raises ValueError for a recording that does not exist."""
    made = {name: script for name, (_, script) in EXPLORABLES.items()} | {"room.js": view_script}
    for name, text in _texts(needed, made, root):
        path = target / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _texts(needed: set[str], made: dict[str, Callable[[], str]], root: Path) -> Iterator[tuple[str, str]]:
    for name in sorted(needed):
        yield name, made[name]() if name in made else recording_script(Path(name).stem, root)


HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MARK = ".made-by-labs-site"
FILES = (HERE / "site.css", HERE / "site.js", HERE.parent / "desk" / "question.css")


@dataclass(frozen=True)
class Built:
    """The size of the built site."""

    pages: int
    bytes: int


def build(target: Path, root: Path = ROOT, done: Callable[[int, int, str], None] = lambda *_: None) -> Built:
    """Build the site into `target`. An older site there is deleted; anything else there raises ValueError."""
    _clear(target)
    pages = find_pages(root)
    targets = targets_of(pages)
    template = Environment(loader=FileSystemLoader(HERE), autoescape=True).get_template("page.html.j2")
    index: list[dict[str, str]] = []
    scripts: set[str] = set()
    rendered_pages: dict[Page, Rendered] = {}
    for number, page in enumerate(pages):
        done(number, len(pages), page.title)
        rendered_pages[page] = render(page, root, targets)
    questions = {page: rendered.questions for page, rendered in rendered_pages.items()}
    for page, rendered in rendered_pages.items():
        scripts.update(needed := scripts_of(rendered.html))
        path = target / page.target
        path.parent.mkdir(parents=True, exist_ok=True)
        values = {**_values(page, pages, rendered), "questions": questions, "scripts": needed}
        path.write_text(template.render(values), encoding="utf-8")
        index += [
            {"url": f"{page.target}#{each.anchor}", "page": page.title, "heading": each.heading, "text": each.text}
            for each in rendered.sections
        ]
    for file in FILES:
        shutil.copyfile(file, target / file.name)
    (target / "code.css").write_text(_code_style(), encoding="utf-8")
    write_scripts(target, scripts, root)
    # A script, since a page from a file system may not fetch JSON.
    (target / "search.js").write_text(f"const INDEX = {json.dumps(index, ensure_ascii=False)};\n", encoding="utf-8")
    done(len(pages), len(pages), "")
    return Built(len(pages), sum(each.stat().st_size for each in target.rglob("*") if each.is_file()))


def _values(page: Page, pages: list[Page], rendered: Rendered) -> dict[str, Any]:
    groups = {group: [each for each in pages if each.group == group] for group in GROUPS}
    place = pages.index(page)
    around = [each for each in pages[max(place - 1, 0) : place + 2] if each.group == page.group]
    before = next((each for each in around if pages.index(each) < place), None)
    after = next((each for each in around if pages.index(each) > place), None)
    return {
        "page": page,
        "groups": groups,
        "body": rendered.html,
        "contents": [each for each in rendered.sections if each.level == 2],
        "before": before,
        "after": after,
    }


def _clear(target: Path) -> None:
    if target.exists() and (not target.is_dir() or (any(target.iterdir()) and not (target / MARK).exists())):
        raise ValueError(f"{target} exists and is not a site of the lab, so nothing was written; choose another folder")
    if target.exists():
        shutil.rmtree(target)
    target.mkdir(parents=True)
    (target / MARK).touch()


def _code_style() -> str:
    light = HtmlFormatter(style="default").get_style_defs(".highlight")
    dark = HtmlFormatter(style="github-dark").get_style_defs(".highlight")
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"
