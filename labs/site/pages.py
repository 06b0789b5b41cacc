"""The pages of the site: their sources, their places, and where their links lead."""

from __future__ import annotations

import itertools
import json
import math
import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from labs.desk.course import CORE, all_lessons

HOME = "labs/site/home.md"  # stands for the README, which describes the repository
PAGES = (HOME, "docs/*.md", "notebooks/*.ipynb", "notebooks/exercises/*.ipynb", "CHANGELOG.md")
GROUPS = {"Course": "notebooks/", "Practice": "notebooks/exercises/", "Pages": "docs/"}


@dataclass(frozen=True)
class Page:
    """A page: its source below the root, its place below the site, and its title."""

    source: PurePosixPath
    target: PurePosixPath
    title: str

    @property
    def group(self) -> str:
        """The heading for this page in the list of pages; empty for the front page."""
        folder = f"{self.source.parent}/"
        found = [group for group, place in GROUPS.items() if folder == place]
        return found[0] if found else "" if str(self.source) == HOME else "Pages"

    @property
    def minutes(self) -> int | None:
        """The minutes that a lesson takes; None for any other page."""
        name = self.source.stem
        number = name if name == CORE else name.partition("_")[0]
        return next((each.minutes for each in all_lessons() if self.group == "Course" and each.number == number), None)

    @property
    def top(self) -> str:
        """The relative path from this page to the site's root: empty, or with `/` at its end."""
        return "../" * (len(self.target.parts) - 1)


def find_pages(root: Path) -> list[Page]:
    """Return the pages in the order of their list. Raises ValueError if a page has no title."""
    found = (path for pattern in PAGES for path in sorted(root.glob(pattern), key=_by_number))
    return [_page(path.relative_to(root), root) for path in found]


def _by_number(path: Path) -> tuple[float, str]:
    """Return a sort key: names with a number come first, 9 before 10, then names without a number."""
    number = re.match(r"\d+", path.name)
    return float(number[0]) if number else math.inf, path.name


def _page(source: Path, root: Path) -> Page:
    target = PurePosixPath("index.html" if str(source) == HOME else source.with_suffix(".html").as_posix())
    prose = prose_of(root / source)
    heading = re.search(r"^# +(.+?) *#*$", prose, re.MULTILINE)
    if not heading:
        raise ValueError(f"{source} has no title: a line that begins with `# `")
    return Page(PurePosixPath(source.as_posix()), target, heading[1].replace("`", ""))


def targets_of(pages: Iterable[Page]) -> dict[PurePosixPath, PurePosixPath]:
    """Return the place below the site of each source; that of the README is the front page, which stands for it."""
    return {page.source: page.target for page in pages} | {PurePosixPath("README.md"): PurePosixPath("index.html")}


def prose_of(path: Path) -> str:
    """Return the Markdown of a page or a notebook."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return text
    cells = json.loads(text)["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def slug(heading: str, taken: set[str]) -> str:
    """Return the anchor that GitHub gives a heading, and add it to `taken`."""
    made = re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
    numbered = itertools.chain([made], (f"{made}-{number}" for number in itertools.count(1)))
    anchor = next(each for each in numbered if each not in taken)
    taken.add(anchor)
    return anchor


def link(href: str, page: Page, targets: dict[PurePosixPath, PurePosixPath]) -> str | None:
    """Return where a link of a page leads on the site, or None if its target is a file that is not on the site.

    Links to other hosts and links within the page do not change.
    """
    if re.match(r"[a-z][a-z0-9+.-]*:|//", href) or href.startswith("#") or not href:
        return href
    path, mark, anchor = href.partition("#")
    source = PurePosixPath(posixpath.normpath(page.source.parent / path))
    if source not in targets:
        return None
    return f"{page.top}{targets[source]}{mark}{anchor}"
