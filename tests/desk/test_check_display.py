"""A check in a lesson says what it is at, and leaves nothing of that in the cell."""

from __future__ import annotations

import time
from queue import Empty
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import start_new_kernel
from nbclient import NotebookClient

from labs.desk.lesson_check import CheckProgress
from labs.exercises.checker.check import find_exercise
from labs.exercises.checker.scenario import Finding, Grade

SKELETON = "# your solution\ndef append(log, record):\n    return log.write(record)"
CHECK = 'from labs.lesson import check\n\nattempt = check("sequence_numbers", In)\nprint(attempt.summary)'


def test_nothing_is_shown_where_there_is_no_kernel(capsys):
    progress = CheckProgress(find_exercise("sequence_numbers"))
    progress.starting("a gap")
    progress.judged(Finding(scenario="a gap", action="", grade=Grade.FAILED, symptom="lost", lost=1))
    progress.close()
    assert capsys.readouterr() == ("", "")


@pytest.fixture
def kernel():
    manager, client = start_new_kernel(kernel_name="python3")
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def shown(client, code: str) -> list[dict[str, Any]]:
    """Execute a cell and return the content of all that it has shown, in order."""
    client.execute(code)
    contents: list[dict[str, Any]] = []
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        try:
            message = client.get_iopub_msg(timeout=240)
        except Empty:
            break
        if message["content"].get("execution_state") == "idle":
            return contents
        if message["msg_type"] in ("display_data", "update_display_data", "stream", "error"):
            contents.append({"type": message["msg_type"], **message["content"]})
    raise AssertionError(f"the cell did not end: {contents}")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_cell_tells_scenario_under_way_verdicts_and_time_and_ends_with_the_summary(kernel):
    assert shown(kernel, SKELETON) == []
    first, *updates, summary = shown(kernel, CHECK)
    assert (first["type"], first["data"]) == ("display_data", {}), "what nbval would compare"
    assert {each["type"] for each in updates} == {"update_display_data"}
    assert {each["transient"]["display_id"] for each in updates} == {first["transient"]["display_id"]}
    *texts, end = [each["data"] for each in updates]
    assert end == {}, "seconds and signs are not to be committed"
    told = [text["text/plain"] for text in texts]
    assert all("about 5 s" in text for text in told)
    assert told[1].endswith("… nothing is lost (1 of 5)")
    assert "✓ nothing is lost: passed" in told[2]
    assert told[3].endswith("several under way (3 of 5)")
    assert "✕ an answer is lost: failed (0 lost, 2 doubled)" in told[3]
    assert summary["type"] == "stream"
    assert summary["text"].startswith("nothing is lost: passed\n")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_executed_notebook_holds_the_summary_and_nothing_of_the_progress():
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in (SKELETON, CHECK)])
    NotebookClient(notebook, timeout=240, kernel_name="python3").execute()
    nbformat.validate(notebook)
    outputs = notebook.cells[1].outputs
    assert [each.output_type for each in outputs] == ["display_data", "stream"]
    assert outputs[0].data == {}
