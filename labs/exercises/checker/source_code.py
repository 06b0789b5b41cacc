"""The student's code: a Python file, a notebook, or the cells that a notebook has just executed.

In a notebook, the student's cells are those that begin with the line `# your solution`. Where there are several (a
lesson has more than one thing to write), those count that define a function of the exercise's.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from labs.equipment.text_file import text_of

MARK = "# your solution"
NOTEBOOKS = Path(__file__).resolve().parents[3] / "notebooks" / "exercises"
SOLUTIONS = Path(__file__).resolve().parents[1] / "solutions"


class NoSource(ValueError):
    """There is no file or no cell to judge."""


@dataclass(frozen=True)
class Source:
    """The text of the student's code, and the name by which error messages call it."""

    text: str
    name: str

    @property
    def empty(self) -> bool:
        """Tell whether there is nothing in it but comments and docstrings. What has a syntax error is not empty."""
        try:
            body = ast.parse(self.text).body
        except (SyntaxError, ValueError):
            return False
        return not [statement for statement in body if not _is_text(statement)]


def read_source(exercise: str, source: str | Path | Iterable[str] | None = None) -> Source:
    """Return the student's code: of a .py or .ipynb file, of executed cells, or of the exercise's notebook.

    Raises NoSource.
    """
    if source is None:
        return _from_file(notebook_of(exercise), exercise)
    if isinstance(source, str | Path):
        return _from_file(Path(source), exercise)
    cells = _meant_for(exercise, [cell for cell in source if cell.lstrip().startswith(MARK)])
    if not cells:
        raise NoSource(f"no executed cell begins with {MARK!r}: execute the cell with your solution first")
    return Source(cells[-1], "your cell")


def solution_of(exercise: str) -> Path:
    """Return the file of the reference solution, which lies apart from what a student opens."""
    return SOLUTIONS / f"{exercise}.py"


def _meant_for(exercise: str, cells: list[str]) -> list[str]:
    """Return the cells that define one of the functions that the reference solution defines; if none does, all."""
    wanted = _functions(solution_of(exercise).read_text())
    return [cell for cell in cells if _functions(cell) & wanted] or cells


def _functions(text: str) -> set[str]:
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError):  # still being written: go by its words
        return set(re.findall(r"^def (\w+)", text, re.MULTILINE))
    return {each.name for each in body if isinstance(each, ast.FunctionDef)}


def notebook_of(exercise: str) -> Path:
    """Return the exercise's notebook, which begins with its number. Raises NoSource."""
    found = sorted(NOTEBOOKS.glob(f"[0-9]*_{exercise}.ipynb"))
    if not found:
        raise NoSource(f"{exercise} has no notebook in {NOTEBOOKS}; name the file with your solution")
    return found[0]


def _from_file(path: Path, exercise: str) -> Source:
    try:
        text = text_of(path)
    except ValueError as error:
        raise NoSource(str(error)) from error
    if path.suffix != ".ipynb":
        return Source(text, path.name)
    try:
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        texts = ["".join(cell["source"]) for cell in cells]
    except (ValueError, KeyError, TypeError) as error:
        raise NoSource(f"{path} is not a notebook: {error}") from error
    marked = [each for each in texts if each.lstrip().startswith(MARK)]
    if not marked:
        raise NoSource(f"no code cell of {path.name} begins with the line {MARK!r}")
    return Source("\n\n".join(_meant_for(exercise, marked)), path.name)


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
