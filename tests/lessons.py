"""The lessons' code, for tests that ask what a lesson does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

LESSONS = Path(__file__).parents[1] / "notebooks"


def lessons() -> Iterator[list[str]]:
    """Yield the code cells of each lesson."""
    for path in sorted(LESSONS.glob("*.ipynb")):
        cells = json.loads(path.read_text())["cells"]
        yield ["".join(cell["source"]).strip() for cell in cells if cell["cell_type"] == "code"]
