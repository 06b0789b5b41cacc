"""Which modules of the lab a piece of source imports or names, found in its text alone: nothing is imported or run.

Seen are `import` statements, also inside functions, modules named in strings (`"labs.commands.run"`,
`f"labs.benchmarks.{name}"`), `"-m", "labs", …` of a child's command line, and imports in a program kept in a string.
Not seen is a name put together from pieces.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

OURS = ("labs", "exactly_once_kafka")

# package -> its layer. A package may import packages of lower layers and itself, but none other of its own layer.
# CONTRIBUTING.md draws the layers.
LAYERS = {
    "exactly_once_kafka": 0,
    "equipment": 1,
    "pipeline": 2,
    "faults": 3,
    "evidence": 3,
    "engines": 4,
    "schedules": 4,
    "runs": 5,
    "exercises": 6,
    "judging": 6,
    "judge": 7,
    "benchmarks": 7,
    "desk": 7,
    "room": 8,
    "lesson": 9,
    "site": 9,
    "commands": 10,
    "__main__": 11,
}

_DOTTED = re.compile(r"(labs|exactly_once_kafka)(\.\w+)+\.?(:\w+)?")
_PROGRAM = re.compile(r"(?:^|; ?)\s*(?:from|import) ((?:labs|exactly_once_kafka)[\w.]*)", re.MULTILINE)


def modules_named(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, module) for every module that the source imports or names."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        yield from ((line, module) for module in _imported(node))
        yield from ((line, module) for module in _run_as_program(node))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            if match := _DOTTED.fullmatch(node.value):
                yield line, match[0].partition(":")[0].rstrip(".")
            yield from ((line, module) for module in _PROGRAM.findall(node.value))


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        if node.level:
            raise ValueError(f"line {node.lineno}: a relative import; write the whole name, so that this check sees it")
        # `from labs import lesson` names a module, `from labs.lesson import check` a name of one: both are found so.
        if node.module in OURS:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        else:
            yield node.module or ""


def _run_as_program(node: ast.AST) -> Iterator[str]:
    parts = node.elts if isinstance(node, ast.List | ast.Tuple) else node.args if isinstance(node, ast.Call) else []
    values = [part.value if isinstance(part, ast.Constant) else None for part in parts]
    if ("-m", "labs") in itertools.pairwise(values):
        yield "labs.__main__"


def package_of(module: str) -> str | None:
    """Return the package of the lab that has a module: `labs.faults.job` -> faults; None for a module of others."""
    top, _, rest = module.partition(".")
    if top not in OURS:
        return None
    return top if top == "exactly_once_kafka" else rest.partition(".")[0] or "labs"


def violations(module: str, source: str) -> Iterator[str]:
    """Yield each module of the lab that this one imports or names and must not, as one line."""
    here = package_of(module)
    assert here is not None, module
    for line, known in modules_named(source):
        there = package_of(known)
        if there is None or there == here:
            continue
        if there not in LAYERS:
            yield f"{module}:{line} names {known}, whose package has no layer: add it to LAYERS in tests/imports.py"
        elif LAYERS[there] >= LAYERS[here]:
            yield f"{module}:{line} ({here}) imports {known} ({there})"


def beyond(source: str, allowed: frozenset[str], packages: tuple[str, ...]) -> Iterator[str]:
    """Yield the modules that the source imports and that neither `allowed` names nor one of `packages` holds.

    What only a type checker reads, below `if TYPE_CHECKING:`, costs nothing and is passed over.
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            node.body = [ast.Pass()]
    for line, module in modules_named(ast.unparse(tree)):
        inside = any(module == package or module.startswith(f"{package}.") for package in packages)
        if module.partition(".")[0] not in allowed and not inside:
            yield f"line {line}: {module}"


def missing_names(source: str, root: Path) -> Iterator[str]:
    """Yield what the source imports from the lab and the lab does not have: a module, or a name in one."""
    for tree in _programs(source):
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in OURS:
                place = root.joinpath(*node.module.split("."))
                yield from (f"{node.module}.{a.name}" for a in node.names if not _has(place, a.name))
            elif isinstance(node, ast.Import):
                for alias in (a for a in node.names if a.name.partition(".")[0] in OURS):
                    place = root.joinpath(*alias.name.split("."))
                    if not (place.is_dir() or place.with_suffix(".py").exists()):
                        yield alias.name


def _programs(source: str) -> Iterator[ast.Module]:
    """Yield the source's tree, and those of programs that it keeps in strings."""
    tree = ast.parse(source)
    yield tree
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _PROGRAM.search(node.value):
            with contextlib.suppress(SyntaxError):  # prose, or a piece of an f-string
                yield ast.parse(node.value)


def _has(place: Path, name: str) -> bool:
    if (place / name).is_dir() or (place / f"{name}.py").exists():
        return True
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return file.exists() and name in _top_level(file.read_text())


@functools.cache
def _top_level(source: str) -> set[str]:
    """Return the names that a module defines or imports, those in `if` and `try` too."""
    found: set[str] = set()
    waiting: list[ast.AST] = list(ast.parse(source).body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            found.add(node.name)
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        waiting += ast.iter_child_nodes(node)
    return found
