"""Each "Change this and rerun" is applied and the lesson run: no assert trips, and what was said to come, comes.

`make test-all` tries one of the changes, `make soak` all of them.
"""

from __future__ import annotations

import nbformat
import pytest

from labs.commands.notebooks import execute
from labs.desk.course import load_lessons
from labs.desk.desk import LESSONS

pytestmark = pytest.mark.long

CHANGES = [(lesson.number, change) for lesson in load_lessons() for change in lesson.changes]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("number", "change"), CHANGES, ids=[f"{number}-{c.by[:30]}" for number, c in CHANGES])
def test_the_changed_lesson_runs_to_its_end_and_does_what_it_says(number, change):
    [path] = LESSONS.glob(f"{number}_*.ipynb")
    notebook = nbformat.read(path, as_version=4)
    [cell] = [cell for cell in notebook.cells if cell.cell_type == "code" and change.cell in cell.source]
    cell.source = cell.source.replace(change.replace, change.by)
    notebook.cells.append(nbformat.v4.new_code_cell(f"assert {change.expect}, {change.expect!r}"))
    execute(notebook, path.parent)
