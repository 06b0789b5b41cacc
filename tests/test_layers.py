"""The rules for the packages of CONTRIBUTING.md, checked in the text of the code: nothing is imported or run."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.imports import beyond, missing_names, modules_named, violations
from tests.lessons import cells, python_of

ROOT = Path(__file__).parents[1]
SOURCES = sorted(path for top in ("labs", "exactly_once_kafka") for path in ROOT.glob(f"{top}/**/*.py"))
NOTEBOOKS = sorted(path for path in ROOT.glob("notebooks/**/*.ipynb") if ".ipynb_checkpoints" not in path.parts)
TESTS = sorted(set(ROOT.glob("tests/**/*.py")) - {Path(__file__)})
STANDARD_LIBRARY = frozenset(sys.stdlib_module_names)
# What is to load in an instant, anywhere: the auditor, and what it needs to know of the log.
PURE = (
    "labs.evidence.auditor",
    "labs.pipeline.records",
    "labs.pipeline.log.access_log",
    "labs.pipeline.log.log_files",
    "labs.pipeline.log.log_report",
)

# Known violations. These lists may only become shorter: an entry that is no longer needed fails the test.
VIOLATIONS = {
    "labs.faults.job imports labs.__main__": "a job is `python -m labs run` in a process of its own",
}
NOT_FROM_THE_API: dict[str, str] = {}
SLEEPS: dict[str, str] = {}

# What a lesson keeps out of sight: running text as code, and looking into the lab instead of showing it.
PLUMBING = ("exec(", "inspect.", "from labs import")


def module_of(path: Path) -> str:
    """Return the dotted name of a source: labs/faults/job.py -> labs.faults.job."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def without_line(finding: str) -> str:
    return re.sub(r":\d+ \(\w+\)| \(\w+\)$", "", finding)


def test_a_package_imports_only_packages_of_lower_layers():
    found = {without_line(each) for path in SOURCES for each in violations(module_of(path), path.read_text())}
    assert found - VIOLATIONS.keys() == set(), "a package may import only packages that CONTRIBUTING.md draws above it"
    assert VIOLATIONS.keys() - found == set(), "mended: take it off the list"


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("labs.evidence.readers.results", "from labs.faults.job import JobProcess"),
        ("labs.faults.job", "from labs.evidence.auditor.audit import audit"),
        ("labs.faults.job", "def late():\n    import labs.runs.chaos"),
        ("labs.faults.job", "load('labs.commands.run')"),
        ("labs.faults.job", "load(f'labs.benchmarks.{name}')"),
        ("labs.faults.job", "run([sys.executable, '-m', 'labs', 'run'])"),
        ("labs.exercises.check", "load('labs.commands.check:run')"),
        ("labs.equipment.broker", "PROGRAM = '''\nimport sys\nfrom labs.pipeline.log import replay\n'''"),
        ("labs.equipment.broker", "from labs import lesson"),
        ("exactly_once_kafka.sink", "from labs.equipment.broker import Broker"),
        ("labs.runs.chaos", "from labs.exercises.checker.check import check"),
        ("labs.runs.chaos", "from labs.attic import old"),
    ],
)
def test_a_violation_is_found(module, source):
    assert list(violations(module, source))


def test_relative_imports_are_refused():
    with pytest.raises(ValueError, match="relative import"):
        list(modules_named("from ..faults import job"))


def test_imports_of_lower_layers_and_docstrings_are_no_violation():
    source = '"""labs.commands.run runs this."""\nfrom labs.pipeline.log import replay\nimport json'
    assert not list(violations("labs.runs.chaos", source))


def impurities() -> Iterator[str]:
    for path in (path for path in SOURCES if module_of(path).startswith(PURE)):
        yield from (f"{module_of(path)}, {each}" for each in beyond(path.read_text(), STANDARD_LIBRARY, PURE))


def test_auditor_and_records_need_only_the_standard_library():
    assert list(impurities()) == [], "these may import the standard library and PURE only"


def test_a_module_that_is_not_pure_is_found():
    source = """
import json
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import numpy
def late():
    import pandas
"""
    assert [each.split()[-1] for each in beyond(source, STANDARD_LIBRARY, ())] == ["pandas"]


def test_the_packages_of_the_lab_need_no_init_files():
    found = [str(path.relative_to(ROOT)) for path in ROOT.glob("labs/*/**/__init__.py")]
    assert found == [], "every import of the package would run it, and Python needs none: put its code into a module"


def test_the_api_of_the_lessons_has_what_they_use_and_nothing_else():
    used: set[str] = set()
    for path in NOTEBOOKS:
        for node in (each for cell in cells(path, "code") for each in ast.walk(ast.parse(python_of(cell)))):
            if isinstance(node, ast.ImportFrom) and node.module == "labs.lesson":
                used |= {alias.name for alias in node.names}
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "lesson":
                used.add(node.attr)
    tree = ast.parse(ROOT.joinpath("labs", "lesson.py").read_text())
    [together] = (node for node in tree.body if isinstance(node, ast.With))
    imported = {alias.name for node in together.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert used - imported == set(), "a lesson imports what labs/lesson.py does not have"
    assert imported - used - {"annotations"} == set(), "no lesson uses it"


def test_lessons_import_from_their_api_only():
    found = set()
    for path in NOTEBOOKS:
        for cell in cells(path, "code"):
            known = {module for _, module in modules_named(python_of(cell)) if module.startswith("labs")}
            found |= {f"{path.name}: {module}" for module in known - {"labs.lesson"}}
    assert found - NOT_FROM_THE_API.keys() == set(), "a lesson imports from labs.lesson only"
    assert NOT_FROM_THE_API.keys() - found == set(), "mended: take it off the list"


def test_lessons_show_the_mechanism_and_not_the_plumbing():
    found = [
        (path.name, each) for path in NOTEBOOKS for cell in cells(path, "code") for each in PLUMBING if each in cell
    ]
    assert found == [], "a cell shows the mechanism: no exec, no inspect, nothing but labs.lesson of the lab"


def test_what_is_imported_is_there():
    """Also in programs that tests keep in strings, in lessons and in the pages' examples."""
    sources = {str(path.relative_to(ROOT)): path.read_text() for path in [*SOURCES, *TESTS]}
    sources |= {path.name: "\n".join(map(python_of, cells(path, "code"))) for path in NOTEBOOKS}
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")):
        sources[page.name] = "\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE))
    found = {name: list(missing_names(source, ROOT)) for name, source in sources.items()}
    assert {name: missing for name, missing in found.items() if missing} == {}, "imported, and not there"


@pytest.mark.parametrize(
    "source",
    [
        "from labs.equipment import create_topic",
        "from labs.pipeline.attic import old",
        "import labs.attic",
        "import json\nAPP = 'import sys; from labs.equipment import spark_session; spark_session()'",
    ],
)
def test_what_is_not_there_is_found(source):
    assert list(missing_names(source, ROOT))


def sleeps(name: str, source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "sleep":
            yield f"{name}: {ast.unparse(node)}"


def test_nothing_waits_by_sleeping():
    found = {each for path in TESTS for each in sleeps(path.name, path.read_text())}
    found |= {each for path in NOTEBOOKS for cell in cells(path, "code") for each in sleeps(path.name, python_of(cell))}
    assert found == SLEEPS.keys(), "wait with eventually(condition), or give the reason in SLEEPS"
    assert list(sleeps("x", "import time\ntime.sleep(1)\nawait_sleep(2)")) == ["x: time.sleep(1)"]
