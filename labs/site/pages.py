"""The pages of the site: which there are, where each goes, and how its links lead on."""

from __future__ import annotations

import itertools
import json
import posixpath
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

PAGES = ("README.md", "docs/*.md", "notebooks/[0-9]*.ipynb", "notebooks/exercises/*.ipynb", "CHANGELOG.md")
GROUPS = {"Course": "notebooks/", "Practice": "notebooks/exercises/", "Pages": "docs/"}


@dataclass(frozen=True)
class Page:
    """A page: its source below the root, where it goes below the site, and its title."""

    source: PurePosixPath
    target: PurePosixPath
    title: str

    @property
    def group(self) -> str:
        """The heading in the list of pages under which it stands; empty for the front page."""
        folder = f"{self.source.parent}/"
        found = [group for group, place in GROUPS.items() if folder == place]
        return found[0] if found else "" if self.source.name == "README.md" else "Pages"

    @property
    def top(self) -> str:
        """The way from this page to the site's root, with `/` at its end unless it is empty."""
        return "../" * (len(self.target.parts) - 1)


def find_pages(root: Path) -> list[Page]:
    """Return the pages in the order in which they are listed. Raises ValueError where a page has no title."""
    return [_page(path.relative_to(root), root) for pattern in PAGES for path in sorted(root.glob(pattern))]


def _page(source: Path, root: Path) -> Page:
    target = PurePosixPath("index.html" if source.name == "README.md" else source.with_suffix(".html").as_posix())
    prose = prose_of(root / source)
    heading = re.search(r"^# +(.+?) *#*$", prose, re.MULTILINE)
    if not heading:
        raise ValueError(f"{source} has no title: a line that begins with `# `")
    return Page(PurePosixPath(source.as_posix()), target, heading[1].replace("`", ""))


def prose_of(path: Path) -> str:
    """Return the Markdown of a page or a notebook."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return text
    cells = json.loads(text)["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def slug(heading: str, taken: set[str]) -> str:
    """Return the anchor that a forge gives a heading, and add it to those that are `taken`."""
    made = re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
    numbered = itertools.chain([made], (f"{made}-{number}" for number in itertools.count(1)))
    anchor = next(each for each in numbered if each not in taken)
    taken.add(anchor)
    return anchor


def link(href: str, page: Page, targets: dict[PurePosixPath, PurePosixPath]) -> str | None:
    """Return where a link of a page leads on the site; None where its target is a file that the site has not.

    Links to elsewhere and within the page stay as they are.
    """
    if re.match(r"[a-z][a-z0-9+.-]*:|//", href) or href.startswith("#") or not href:
        return href
    path, mark, anchor = href.partition("#")
    source = PurePosixPath(posixpath.normpath(page.source.parent / path))
    if source not in targets:
        return None
    return f"{page.top}{targets[source]}{mark}{anchor}"
