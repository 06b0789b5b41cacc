"""One page: a notebook or Markdown becomes HTML, with anchors, with links that lead on, with sections to search."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import nbformat
from bs4 import BeautifulSoup, Tag
from nbconvert import HTMLExporter

from labs.site.pages import Page, link, slug
from labs.site.questions import ask_in_browser

NO_ALTERNATIVE = "No description has been provided for this image"  # what nbconvert writes


@dataclass(frozen=True)
class Section:
    """A piece of a page that a search finds: a heading and the text up to the next."""

    anchor: str
    heading: str
    text: str


@dataclass(frozen=True)
class Rendered:
    html: str
    sections: list[Section]


def render(page: Page, root: Path, targets: dict[PurePosixPath, PurePosixPath]) -> Rendered:
    """Render one page as the inside of `<main>`. A link to a file that the site has not becomes text."""
    soup = BeautifulSoup(_body(root / page.source), "html.parser")
    for each in soup.select(".anchor-link, .prompt"):
        each.decompose()
    taken: set[str] = set()
    for heading in soup.select("h1, h2, h3, h4, h5, h6"):
        heading["id"] = slug(heading.get_text(), taken)
    for anchor in soup.select("a[href]"):
        leads = link(str(anchor["href"]), page, targets)
        if leads is None:
            anchor.name = "span"
            del anchor["href"]
        else:
            anchor["href"] = leads
    for image in soup.select("img[src]"):
        if not str(image["src"]).startswith("data:"):
            image["src"] = _embedded(root / page.source.parent / str(image["src"]))
        if image.get("alt") in (None, NO_ALTERNATIVE):
            image["alt"] = _what_is_seen(image)
    for wide in soup.select("pre, table"):
        wide["tabindex"] = "0"  # who has no mouse can scroll it
    return Rendered(str(soup), list(_sections(soup)))


def _body(source: Path) -> str:
    if source.suffix == ".ipynb":
        notebook = nbformat.read(source, as_version=4)
        ask_in_browser(notebook.cells)
    else:
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(source.read_text(encoding="utf-8"))])
    body, _ = HTMLExporter(template_name="basic").from_notebook_node(notebook)
    return str(body)


def _embedded(picture: Path) -> str:
    """Return a picture as part of its page. Raises ValueError for a kind that no page here uses."""
    kinds = {".png": "image/png", ".svg": "image/svg+xml"}
    if picture.suffix not in kinds:
        raise ValueError(f"{picture} is neither PNG nor SVG")
    return f"data:{kinds[picture.suffix]};base64,{base64.b64encode(picture.read_bytes()).decode()}"


def _what_is_seen(image: Tag) -> str:
    """Return a plot's text alternative: the heading above it, and what the lesson says of it below."""
    heading = image.find_previous(["h1", "h2", "h3"])
    said = (each for each in image.find_all_next("p") if each.get_text(strip=True))  # a question's line is still empty
    parts = [each.get_text(" ", strip=True) for each in (heading, next(said, None)) if each is not None]
    return "Plot. " + ". ".join(parts)[:300]


def _sections(soup: BeautifulSoup) -> Iterator[Section]:
    """Yield the pieces between headings, each with the heading's anchor."""
    anchor, heading = "", ""
    words: list[str] = []
    for element in soup.find_all(["h1", "h2", "h3", "h4", "p", "li", "td", "pre", "legend"]):
        text = " ".join(element.get_text(" ", strip=True).split())
        if element.name in ("h1", "h2", "h3", "h4"):
            if words or heading:
                yield Section(anchor, heading, " ".join(words))
            anchor, heading, words = str(element["id"]), text, []
        elif not (element.name == "p" and element.find_parent(["li", "td"])):
            words.append(text)
    yield Section(anchor, heading, " ".join(words))
