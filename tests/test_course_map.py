"""The course map says what the lessons' data say, and its sums are right."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from labs.desk.course import Lesson, load_lessons
from labs.desk.desk import LESSONS
from labs.exercises.catalogue import EXERCISES
from tests.lessons import cells

PAGE = Path(__file__).parents[1] / "docs" / "course-map.md"
CORE = 90


def tables(page: str) -> dict[str, list[list[str]]]:
    """Return the rows of the first table below each heading, the head aside."""
    found = {}
    for heading, text in re.findall(r"^##+ (.+?)\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL):
        rows = [
            [cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*", text, re.MULTILINE)
        ]
        found[heading] = rows[2:]
    return found


def findings(page: str, lessons: list[Lesson]) -> Iterator[str]:
    """Yield what is wrong with a map, one line each."""
    rows = {row[0]: row for row in tables(page)["The lessons"]}
    minutes = {number: int(row[2]) for number, row in rows.items()}
    for lesson in lessons:
        if lesson.number not in rows:
            yield f"{lesson.number} is not on the map"
        elif (lesson.title, lesson.minutes) != (rows[lesson.number][1], minutes[lesson.number]):
            yield f"{lesson.number} is {lesson.title!r} of {lesson.minutes} minutes"
    for number, row in rows.items():
        for needed in re.findall(r"\d\d", row[3]):
            if needed not in rows or needed >= number:
                yield f"{number} needs {needed}"
    if f"Together {sum(minutes.values())} minutes" not in page:
        yield f"all lessons take {sum(minutes.values())} minutes"
    core = {row[0]: int(row[1]) for row in tables(page)["The core, 90 minutes"]}
    if sum(core.values()) != CORE or list(core) != ["03", "04", "05", "06"]:
        yield f"the core is {core}"
    yield from _plan(tables(page)["Half a day"], minutes, core)
    for first in (0, 2):
        yield from _plan([row[first : first + 2] for row in tables(page)["Two days"]], minutes, core)


def _plan(rows: list[list[str]], minutes: dict[str, int], core: dict[str, int]) -> Iterator[str]:
    *parts, (_, together) = rows
    for name, said in parts:
        number = name[:2]
        full = core if "as in the core" in name else minutes
        if number.isdecimal() and int(said) != full[number]:
            yield f"{name} takes {full[number]} minutes, and not {said}"
    if (total := sum(int(said) for _, said in parts)) != int(together.strip("*")):
        yield f"the plan takes {total} minutes, and not {together}"


def test_map_is_that_of_the_lessons():
    assert list(findings(PAGE.read_text(), load_lessons())) == []


def test_exercises_of_a_lesson_are_those_that_it_checks():
    """An exercise that the map names is one of the catalogue, if its lesson is there in its new shape."""
    for lesson in load_lessons():
        [path] = LESSONS.glob(f"{lesson.number}_*.ipynb")
        checked = set(re.findall(r'\bcheck\(\s*"(\w+)"', "\n".join(cells(path, "code"))))
        [row] = [row for row in tables(PAGE.read_text())["The lessons"] if row[0] == lesson.number]
        assert set(re.findall(r"`(\w+)`", row[5])) == checked <= set(EXERCISES), lesson.number


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        (
            "| 02 | A restart counts twice | 60",
            "| 02 | A restart counts twice | 45",
            "02 is 'A restart counts twice' of 60",
        ),
        ("| 02 | A restart", "| 02 | The restart", "02 is 'A restart counts twice'"),
        ("| 05 | Transactions hide unfinished work | 60 | 04", "| 05 | T | 60 | 06", "05 needs 06"),
        ("Together 985", "Together 800", "all lessons take 985 minutes"),
        ("| 03 | 20 |", "| 03 | 25 |", "the core is"),
        ("| break | 25 |", "| break | 20 |", "the plan takes 235 minutes"),
        ("| 04, as in the core | 20", "| 04, as in the core | 30", "04, as in the core takes 20 minutes"),
        ("| 05 | 60 | 13 | 45 |", "| 05 | 60 | 13 | 40 |", "13 takes 45 minutes"),
    ],
)
def test_spoiled_map_is_found(old, new, finding):
    page = PAGE.read_text()
    assert old in page
    assert finding in "\n".join(findings(page.replace(old, new), load_lessons()))
