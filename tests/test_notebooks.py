"""Every lesson runs from top to bottom in a fresh kernel and prints what it was committed with."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from labs.commands.notebooks import all_notebooks
from tests.lessons import LESSONS
from tests.tiers import in_tiers

# The numbered exercises hold skeletons: tests/exercises checks those.
NOTEBOOKS = [*sorted(LESSONS.glob("*.ipynb")), *sorted(LESSONS.glob("exercises/[a-z]*.ipynb"))]
each_notebook = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
# Of the story that the lab is for; 03 and 04 show what the tests of pipeline show, too.
STORY = [path.stem for path in NOTEBOOKS if path.stem[:2] in ("00", "01", "05", "06", "07")]


def code_cells(notebook: Path) -> list[dict]:
    cells = json.loads(notebook.read_text())["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code" and "".join(cell["source"]).strip()]


def test_there_are_notebooks():
    assert {"07_exactly_once_end_to_end", "attack_game", "more_on_checkpoints", "original_questions"} < {
        path.stem for path in NOTEBOOKS
    }


def test_the_command_executes_the_same_ones():
    assert all_notebooks() == NOTEBOOKS


@pytest.mark.parametrize("notebook", in_tiers(NOTEBOOKS, STORY, lambda path: path.stem))
@pytest.mark.timeout(1200)
def test_it_runs_and_prints_what_was_committed(notebook):
    nbval = [sys.executable, "-m", "pytest", "--nbval-lax", "-x", "-q", "--nbval-cell-timeout=300", "--timeout=1200"]
    run = subprocess.run([*nbval, notebook.name], cwd=notebook.parent, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]


@each_notebook
def test_it_was_committed_as_executed_in_order(notebook):
    counts = [cell["execution_count"] for cell in code_cells(notebook)]
    assert counts == list(range(1, len(counts) + 1))


@each_notebook
def test_its_cells_are_short_and_its_output_is_free_of_noise(notebook):
    for cell in code_cells(notebook):
        assert len([line for line in cell["source"] if line.strip()]) <= 20, "".join(cell["source"])
        assert not [o for o in cell["outputs"] if o.get("name") == "stderr"], "".join(cell["source"])


@each_notebook
def test_its_widgets_were_committed_as_text_and_pictures(notebook):
    shown = [output.get("data", {}) for cell in code_cells(notebook) for output in cell["outputs"]]
    assert not [data for data in shown if "application/vnd.jupyter.widget-view+json" in data], "it ends with its kernel"


@each_notebook
def test_it_ends_in_a_verdict(notebook):
    assert any("assert " in "".join(cell["source"]) for cell in code_cells(notebook))
