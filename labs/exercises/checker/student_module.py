"""The student's code: read from a Python file, a notebook or the cells just executed, and loaded as a module.

In a notebook, the student's cells are those that define a function of the exercise, even if the student has deleted the
line `# your solution`. Cells that begin with that line count, too, unless they define a function of another exercise:
the function's name may be misspelled.

What the code raised is told in one line: the exception (`in_words`), and the last line of the code that it passed
through (`where`).
"""

from __future__ import annotations

import ast
import inspect
import json
import linecache
import re
import sys
import traceback
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labs.equipment.plain_text import first_line, text_of

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
        """Tell whether it has only comments and docstrings. A text with a syntax error is not empty."""
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
    cells = _meant_for(exercise, list(source))
    if not cells:
        raise NoSource(f"no executed cell {_belongs_to(exercise)}: execute the cell with your solution first")
    return Source("\n\n".join(_newest(exercise, cells)), "your cell")


def solution_of(exercise: str) -> Path:
    """Return the file of the reference solution, which is not among the files that a student opens."""
    return SOLUTIONS / f"{exercise}.py"


def _meant_for(exercise: str, cells: list[str]) -> list[str]:
    """Return the cells for this exercise, in their order; if there are none, all that are marked."""
    functions = {file.stem: _functions(file.read_text()) for file in SOLUTIONS.glob("*.py")}
    wanted, others = functions[exercise], set[str]().union(*functions.values())

    def is_theirs(cell: str) -> bool:
        defined = _functions(cell)
        return bool(defined & wanted) or (_is_marked(cell) and not defined & others)

    return list(filter(is_theirs, cells)) or list(filter(_is_marked, cells))


def _newest(exercise: str, cells: list[str]) -> list[str]:
    """Return the last cell and, for functions of the exercise that it lacks, the last ones that define them."""
    *older, last = cells
    found, wanted = [last], _functions(solution_of(exercise).read_text())
    missing = wanted - _functions(last) if _functions(last) & wanted else set[str]()
    for cell in reversed(older):
        if _functions(cell) & missing:
            found.insert(0, cell)
            missing -= _functions(cell)
    return found


def _is_marked(cell: str) -> bool:
    return cell.lstrip().startswith(MARK)


def _belongs_to(exercise: str) -> str:
    names = sorted(_functions(solution_of(exercise).read_text()))
    return f"defines {' or '.join(names)}, or begins with the line {MARK!r}"


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
    theirs = _meant_for(exercise, texts)
    if not theirs:
        raise NoSource(f"no code cell of {path.name} {_belongs_to(exercise)}")
    return Source("\n\n".join(theirs), path.name)


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


class Unusable(Exception):
    """The file lacks something that the exercise asks for; `kind` is the ending to note."""

    def __init__(self, kind: str, what: str):
        super().__init__(what)
        self.kind = kind


def load(file: str, shown_as: str) -> types.ModuleType:
    """Execute the student's file as a module."""
    source = Path(file).read_text("utf-8-sig")
    linecache.cache[shown_as] = (len(source), None, source.splitlines(keepends=True), shown_as)
    module = types.ModuleType("student")
    module.__file__ = shown_as
    sys.modules["student"] = module
    exec(compile(source, shown_as, "exec"), module.__dict__)
    return module


def find(module: types.ModuleType, name: str) -> Any:
    """Return the function that the exercise asks for. Raises Unusable."""
    found = getattr(module, name, None)
    if found is None:
        there = [n for n, value in vars(module).items() if inspect.isfunction(value)]
        raise Unusable("missing", f"there is no function {name}(…); there is: {', '.join(there) or 'none'}")
    if not callable(found):
        raise Unusable("missing", f"{name} should be a function, and is {type(found).__name__}")
    return found


def publish_in(file: str) -> Callable[..., object]:
    """Return the function publish(rows, batch_id, kafka) of a Python file. Raises ValueError that says why not."""
    try:
        publish = find(load(file, Path(file).name), "publish")
        require_parameters(publish, (None, 0, None), "rows, batch_id, kafka")
    except (Exception, SystemExit) as error:
        raise ValueError(f"{file} cannot be used as a sink: {type(error).__name__}: {error}") from error
    return publish


def require_parameters(function: Any, arguments: tuple, names: str, generator: bool = False) -> None:
    """Raise Unusable unless the function can be called with these arguments, and calling it runs it."""
    name = getattr(function, "__name__", type(function).__name__)
    what = "async" if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function) else ""
    if what or (inspect.isgeneratorfunction(function) and not generator):
        raise Unusable("signature", f"{name} has {what or 'yield'} in it, so that calling it does nothing: take it out")
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        has = inspect.signature(function)
        raise Unusable("signature", f"{name}{has} is called with ({names}): {error}") from None
    except ValueError:  # a callable without a signature
        return


def in_words(error: BaseException) -> str:
    """Return an exception in one line; if Spark wrapped it, its cause."""
    name = type(error).__name__
    if str(type(error).__module__).startswith(("py4j", "pyspark")):
        from labs.pipeline.query.query_failure import why

        said = safely(why, error)
    else:
        said = safely(str, error)
    said = first_line(said)
    return f"{name}: {said}" if said else name


def safely(describe: Callable[[Any], str], what: object) -> str:
    """Describe a value of the student's code, whose methods may raise."""
    try:
        return describe(what)
    except BaseException as error:
        return f"(it cannot be shown: that raises {type(error).__name__})"


def where(error: BaseException, file: str) -> str:
    """Return the last line of the file that an error passed through, in brackets; empty if it passed through none."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file and frame.lineno]
    if not frames:
        return ""
    return at_line(file, frames[-1].lineno or 0)


def at_line(file: str, line: int) -> str:
    """Return a line with its number, in brackets."""
    return f" (line {line}: {linecache.getline(file, line).strip()})"
