"""Builds the course as static pages: from committed lessons and docs alone, without a kernel, a network or a server.

Guarantee: the pages work from a file system and below any path, and ask no other host for anything. Where it stops:
what a lesson shows is what was committed; nothing is executed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from pygments.formatters import HtmlFormatter

from labs.site.pages import GROUPS, Page, find_pages
from labs.site.render import Rendered, render
from labs.site.widgets import scripts_of, write_scripts

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MARK = ".made-by-labs-site"
FILES = ("site.css", "site.js")


@dataclass(frozen=True)
class Built:
    """How much was built."""

    pages: int
    bytes: int


def build(target: Path, root: Path = ROOT, done: Callable[[int, int, str], None] = lambda *_: None) -> Built:
    """Build the site into `target`, which is emptied first if it is a site; raise ValueError if it is anything else."""
    _clear(target)
    pages = find_pages(root)
    targets = {page.source: page.target for page in pages}
    template = Environment(loader=FileSystemLoader(HERE), autoescape=True).get_template("page.html.j2")
    index: list[dict[str, str]] = []
    scripts: set[str] = set()
    for number, page in enumerate(pages):
        done(number, len(pages), page.title)
        rendered = render(page, root, targets)
        scripts.update(needed := scripts_of(rendered.html))
        path = target / page.target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(template.render(**_values(page, pages, rendered), scripts=needed), encoding="utf-8")
        index += [
            {"url": f"{page.target}#{each.anchor}", "page": page.title, "heading": each.heading, "text": each.text}
            for each in rendered.sections
        ]
    for name in FILES:
        shutil.copyfile(HERE / name, target / name)
    (target / "code.css").write_text(_code_style(), encoding="utf-8")
    write_scripts(target, scripts, root)
    # A script and not JSON: a page opened from a file system may not fetch anything.
    (target / "search.js").write_text(f"const INDEX = {json.dumps(index, ensure_ascii=False)};\n", encoding="utf-8")
    done(len(pages), len(pages), "")
    return Built(len(pages), sum(each.stat().st_size for each in target.rglob("*") if each.is_file()))


def _values(page: Page, pages: list[Page], rendered: Rendered) -> dict[str, Any]:
    groups = {group: [each for each in pages if each.group == group] for group in GROUPS}
    place = pages.index(page)
    around = [each for each in pages[max(place - 1, 0) : place + 2] if each.group == page.group]
    before = next((each for each in around if pages.index(each) < place), None)
    after = next((each for each in around if pages.index(each) > place), None)
    return {"page": page, "groups": groups, "body": rendered.html, "before": before, "after": after}


def _clear(target: Path) -> None:
    if target.exists() and (not target.is_dir() or (any(target.iterdir()) and not (target / MARK).exists())):
        raise ValueError(f"{target} is there already and is no site of the lab's: nothing was written")
    if target.exists():
        shutil.rmtree(target)
    target.mkdir(parents=True)
    (target / MARK).touch()


def _code_style() -> str:
    light = HtmlFormatter(style="default").get_style_defs(".highlight")
    dark = HtmlFormatter(style="github-dark").get_style_defs(".highlight")
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"
