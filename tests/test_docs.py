"""The pages and lessons lead somewhere: links, anchors, files and tests exist; words are spelt as in a dictionary.

Links that leave the repository are not followed: the tests use no network.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob(".github/*.md")])
LESSONS = sorted(path for path in ROOT.glob("notebooks/**/*.ipynb") if ".ipynb_checkpoints" not in path.parts)
FOLDERS = ("labs", "exactly_once_kafka", "examples", "tests", ".github")
SOURCES = [ROOT / name for name in (*FOLDERS, "Makefile", "docker-compose.yml")]

# Words that are right here, and that the checker would correct.
OUR_WORDS = {"caf": "hexadecimal digits of an address in a log line"}
# Files that a text tells the reader to make.
MADE_LATER = {"tests/sunk"}

_FENCE = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)[^)]*\)|(?:href|src)=[\"']([^\"']+)[\"']")
_PATH = re.compile(r"(?<![\w./~-])((?:labs|exactly_once_kafka|examples|notebooks|docs|tests)/[\w./-]*\w)(?![\w*{}])")


def text_of(path: Path) -> str:
    """Return a page's text; of a lesson its cells, without what they printed."""
    if path.suffix != ".ipynb":
        return path.read_text()
    cells = json.loads(path.read_text())["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells)


def prose_of(path: Path) -> str:
    if path.suffix != ".ipynb":
        return path.read_text()
    cells = json.loads(path.read_text())["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def anchors(prose: str) -> set[str]:
    """Return the anchors that a forge gives a page's headings."""
    found: set[str] = set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", prose))
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", _FENCE.sub("", prose), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()).replace(" ", "-")
        found.add(
            slug if slug not in found else next(f"{slug}-{n}" for n in range(1, 99) if f"{slug}-{n}" not in found)
        )
    return found


def dead_links(page: Path, prose: str) -> Iterator[str]:
    """Yield what a page links to in this repository and is not there."""
    for target in filter(None, (first or second for first, second in _LINK.findall(_FENCE.sub("", prose)))):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        path, _, anchor = unquote(target).partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.is_relative_to(ROOT) or not file.exists():
            yield f"{page.name} -> {target}: no such file"
        elif anchor and anchor not in anchors(prose if file == page else prose_of(file)):
            yield f"{page.name} -> {target}: no such heading"


def absent_files(name: str, text: str) -> Iterator[str]:
    """Yield the files of this repository that a text names and that are not there."""
    yield from (
        f"{name}: {path}" for path in _PATH.findall(text) if not (ROOT / path).exists() and path not in MADE_LATER
    )


def misspelt(paths: list[Path | str]) -> str:
    options = ["--skip", "*.pyc,*.sha256,*.json", "--ignore-words-list", ",".join(OUR_WORDS)]
    check = [sys.executable, "-m", "codespell_lib", *options, *map(str, paths)]
    ran = subprocess.run(check, capture_output=True, text=True)
    return ran.stdout + ran.stderr


def test_links_lead_somewhere():
    found = [each for page in (*PAGES, *LESSONS) for each in dead_links(page, prose_of(page))]
    assert found == [], "\n".join(found)


@pytest.mark.parametrize("link", ["[x](docs/attic.md)", "[x](#attic)", "[x](CONTRIBUTING.md#attic)", '<a href="../x">'])
def test_dead_link_is_found(link):
    assert (
        len(list(dead_links(ROOT / "README.md", f"# Here\n\n{link} and [y](#here) and [z](https://x.example/#y)"))) == 1
    )


def test_files_that_are_named_are_there():
    texts = {page.name: text_of(page) for page in (*PAGES, *LESSONS)}
    found = [each for name, text in texts.items() for each in absent_files(name, text)]
    assert found == [], "named, and not there:\n" + "\n".join(found)
    assert list(absent_files("x", "see `labs/attic.py`, `labs/lesson.py` and /usr/labs/x")) == ["x: labs/attic.py"]


@functools.cache
def known_tests() -> set[tuple[str, str]]:
    """Return (file, function) of each test there is, without their "test_"."""
    return {
        (path.stem.removeprefix("test_"), node.name.removeprefix("test_"))
        for path in ROOT.glob("tests/**/test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def cells_of(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def rows_without_a_test(name: str, prose: str) -> Iterator[str]:
    """Yield each row of a table with a last column "shown by" that names no test, or one that is not there.

    `marker: newest marker counts` is test_newest_marker_counts in a file test_marker.py; "; " stands between two.
    """
    for table in re.findall(r"(?:^\|.*\n?)+", _FENCE.sub("", prose), re.MULTILINE):
        head, _, *rows = table.splitlines()
        for row in rows if cells_of(head)[-1] == "shown by" else ():
            *_, shown_by = cells_of(row)
            for test in shown_by.split("; "):
                file, _, function = test.replace(" ", "_").partition(":_")
                if (file, function) not in known_tests():
                    yield f"{name}, {cells_of(row)[0]!r}: no test {test!r}"


def test_tests_that_show_the_rows_of_a_table_are_there():
    found = [each for page in PAGES for each in rows_without_a_test(page.name, page.read_text())]
    assert found == [], "a table says that these tests show its rows:\n" + "\n".join(found)
    tables = sum(page.read_text().count("| shown by |\n") for page in PAGES)
    assert tables == 4


@pytest.mark.parametrize("shown_by", ["", "docs", "docs: spelling; docs: attic", "attic: spelling", "docs: spelling;"])
def test_row_without_a_test_is_found(shown_by):
    table = "| failure | shown by |\n|---|---|\n| good | docs: spelling |\n| good | docs: spelling; docs: spelling |\n"
    found = list(rows_without_a_test("x", f"{table}| bad | {shown_by} |\n\n| other | table |\n|---|---|\n| a | b |\n"))
    assert len(found) == 1
    assert found[0].startswith("x, 'bad': no test ")


def claims_without_limit(name: str, text: str) -> Iterator[str]:
    """Yield each paragraph that calls the auditor independent and does not say that it shares the parser."""
    for paragraph in re.split(r"\n\s*\n", text):
        if re.search(r"independen", paragraph) and re.search(r"auditor", paragraph) and "parser" not in paragraph:
            yield f"{name}: {paragraph.strip()[:100]}"


def test_independence_of_the_auditor_is_claimed_with_its_limit():
    pages = [*PAGES, *LESSONS, ROOT / "CITATION.cff", *sorted(ROOT.glob("labs/**/*.py"))]
    found = [each for page in pages for each in claims_without_limit(page.name, text_of(page))]
    assert found == [], "say also that the auditor and the pipeline share the parser:\n" + "\n".join(found)
    claim = "The auditor is independent of Spark"
    assert list(claims_without_limit("x", f"Other.\n\n{claim}.")) == [f"x: {claim}."]
    assert list(claims_without_limit("x", f"{claim}, but not of the parser.")) == []


@pytest.mark.bench
def test_spelling(tmp_path):
    for path in LESSONS:  # without their pictures
        tmp_path.joinpath(f"{path.stem}.md").write_text(text_of(path))
    assert misspelt([*PAGES, *SOURCES, tmp_path]) == ""
    wrong = tmp_path / "wrong.md"
    wrong.write_text(f"Exactly once, {'t'}eh end.")
    assert "==> the" in misspelt([wrong])
