"""What stands in notebooks, for tests that ask what a lesson does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

LESSONS = Path(__file__).parents[1] / "notebooks"


def cells(notebook: Path, kind: str) -> list[str]:
    """Return the sources of a notebook's cells of one kind, "code" or "markdown"."""
    found = json.loads(notebook.read_text())["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == kind]


def python_of(cell: str) -> str:
    """Return a cell's Python: what Jupyter takes for itself, `%env` and `!ls`, is made a comment."""
    return re.sub(r"^(\s*)[%!]", r"\1pass  # ", cell, flags=re.MULTILINE)


def lessons() -> Iterator[list[str]]:
    """Yield the code cells of each lesson."""
    for path in sorted(LESSONS.glob("*.ipynb")):
        yield [cell.strip() for cell in cells(path, "code")]
