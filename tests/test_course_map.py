"""The course map says what the lessons' data say, and its sums are right."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from labs.desk.course import Lesson, load_core, load_lessons
from labs.desk.desk import LESSONS
from labs.exercises.checker.check import EXERCISES
from tests.lessons import cells

PAGE = Path(__file__).parents[1] / "docs" / "course-map.md"
CORE_PROSE = "\n".join(cells(LESSONS / "core_90.ipynb", "markdown"))


def tables(page: str) -> dict[str, list[list[str]]]:
    """Return the rows of the first table below each heading, the head aside; of a link its text."""
    found = {}
    page = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", page)
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
    yield from _core(tables(page)["The core, 90 minutes"])
    yield from _plan(tables(page)["Half a day"], minutes)
    for first in (0, 2):
        yield from _plan([row[first : first + 2] for row in tables(page)["Two days"]], minutes)


def _core(rows: list[list[str]]) -> Iterator[str]:
    """Yield what is wrong with the stops of the core; its notebook names them, and when each begins."""
    clock = 0
    for name, minutes, begins, *_ in rows:
        if begins != (at := f"{clock // 60}:{clock % 60:02}"):
            yield f"{name} begins at {at}, and not at {begins}"
        clock += int(minutes)
    if clock != load_core().minutes:
        yield f"the core takes {clock} minutes"
    stops = [(heading[1], heading[2]) for heading in re.finditer(r"^## (\d:\d\d) · (.+)$", CORE_PROSE, re.MULTILINE)]
    if stops != [(begins, name) for name, _, begins, *_ in rows]:
        yield f"the notebook has the stops {stops}"


def _plan(rows: list[list[str]], minutes: dict[str, int]) -> Iterator[str]:
    *parts, (_, together) = rows
    lessons = minutes | {load_core().number: load_core().minutes}
    for name, said in parts:
        if name in lessons and int(said) != lessons[name]:
            yield f"{name} takes {lessons[name]} minutes, and not {said}"
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
            "(../notebooks/03_a_restart_counts_twice.ipynb) | 60",
            "(../notebooks/03_a_restart_counts_twice.ipynb) | 45",
            "03 is 'A restart counts twice' of 60",
        ),
        ("| 03 | [A restart", "| 03 | [The restart", "03 is 'A restart counts twice'"),
        ("hide_unfinished_work.ipynb) | 60 | 05", "hide_unfinished_work.ipynb) | 60 | 07", "06 needs 07"),
        ("Together 1035", "Together 800", "all lessons take 1035 minutes"),
        ("| One crash | 12 |", "| One crash | 13 |", "One lost answer begins at 0:28"),
        ("| Exit ticket | 3 |", "| Exit ticket | 4 |", "the core takes 91 minutes"),
        ("| One abort |", "| Two aborts |", "the notebook has the stops"),
        ("| break | 25 |", "| break | 20 |", "the plan takes 215 minutes"),
        ("| core_90 | 90 |", "| core_90 | 80 |", "core_90 takes 90 minutes"),
        ("| 06 | 60 | 15 | 45 |", "| 06 | 60 | 15 | 40 |", "15 takes 45 minutes"),
    ],
)
def test_spoiled_map_is_found(old, new, finding):
    page = PAGE.read_text()
    assert old in page
    assert finding in "\n".join(findings(page.replace(old, new), load_lessons()))
