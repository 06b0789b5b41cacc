"""Execute the lessons in place, each in a fresh kernel, so that their real outputs are committed."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbformat import NotebookNode

EXAMPLES = """examples:
  python -m labs notebooks
  python -m labs notebooks notebooks/03_*.ipynb
"""
NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "notebooks", nargs="*", type=Path, help="which (default: all lessons, and the notebooks for practice)"
    )
    parser.add_argument("--timeout", type=int, default=300, help="seconds for one cell (default: %(default)s)")


def all_notebooks() -> list[Path]:
    """Return the lessons and the notebooks for practice, without the numbered exercises, which hold skeletons."""
    return [*sorted(NOTEBOOKS.glob("*.ipynb")), *sorted(NOTEBOOKS.glob("exercises/[a-z]*.ipynb"))]


def run(arguments: argparse.Namespace) -> int:
    import nbformat
    from nbclient.exceptions import CellExecutionError

    from labs.commands.console import bench_progress, plain_console

    paths = arguments.notebooks or all_notebooks()
    with bench_progress(plain_console(stderr=True)) as progress:
        for number, path in enumerate(paths):
            progress.show("notebooks", number, len(paths), path.name)
            notebook = nbformat.read(path, as_version=4)
            try:
                execute(notebook, path.parent, arguments.timeout)
            except CellExecutionError as error:
                raise RuntimeError(f"{path}: {error}") from error
            finally:
                nbformat.write(_clean(notebook), path)
        progress.show("notebooks", len(paths), len(paths))
    return 0


def execute(notebook: NotebookNode, folder: Path, timeout: int = 300) -> None:
    """Execute all cells in a fresh kernel that works in `folder`. Raises CellExecutionError."""
    from nbclient import NotebookClient

    NotebookClient(
        notebook,
        timeout=timeout,
        coalesce_streams=True,
        kernel_name="python3",
        resources={"metadata": {"path": folder}},
    ).execute()


def _clean(notebook: NotebookNode) -> NotebookNode:
    """Drop the parts that differ from run to run without meaning: timings, and the state of widgets."""
    notebook.metadata.pop("widgets", None)
    notebook.metadata.get("language_info", {}).pop("version", None)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        # A widget ends with its kernel; its output also exists as text.
        for output in cell.get("outputs", []):
            output.get("data", {}).pop("application/vnd.jupyter.widget-view+json", None)
        if "outputs" in cell:  # the display of a check's progress is empty at the end
            cell.outputs = [each for each in cell.outputs if each.output_type != "display_data" or each.data]
    return notebook
