"""Each cell of the lessons, and of three notebooks for practice, run twice: the second run says the same, also after
an interrupt of one cell.

A student runs a cell again because an answer was wrong, or stops one that takes long. What is compared is the output of
the cells that nbval compares, which is the same each time. `make test-all` does so with one lesson, `make soak` with
all of them: it takes three minutes a lesson.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

from tests.lessons import LESSONS

PRACTICE = ("judge_a_job", "more_on_checkpoints", "original_questions")
NOTEBOOKS = sorted(LESSONS.glob("*.ipynb"))
NOTEBOOKS += [LESSONS / "exercises" / f"{name}.ipynb" for name in PRACTICE]
QUERY_RUNS = "any(query.status['isTriggerActive'] for query in bench.spark.streams.active)"

# Of each notebook, by the first two letters of its name, a piece of the cell that is interrupted, and when: as soon as
# this is true, asked in the kernel.
INTERRUPTED = {
    "00": ("after_kill.compare(", "not bench.broker.running"),
    "01": ("query = run(checkpoint)\nresults =", QUERY_RUNS),
    "02": ("counted_fast, fast_batches = count(", QUERY_RUNS),
    "03": ("crashed at", QUERY_RUNS),
    "04": ("restarted = run(", QUERY_RUNS),
    "05": ("third.compare(", "not bench.broker.running"),
    "06": ("zombie = transactional_producer(", "'zombie' in globals()"),
    "07": ("opening = run(", QUERY_RUNS),
    "08": ('crashed_in_batch_5("newer-state")', QUERY_RUNS),
    "09": ("def prepare_the_third_again(", "True"),
    "10": ('note("nothing broken"', QUERY_RUNS),
    "11": ("print(published :=", QUERY_RUNS),
    "12": ("before = {table", QUERY_RUNS),
    "13": ("report = run_chaos(", "True"),
    "14": ("to_ours = late_commit(", QUERY_RUNS),
    "15": ("costs = list(measure_cost(", QUERY_RUNS),
    "16": ("replay_on_kafka(explore(", "True"),
    "17": ("onward.compare(", "True"),
    "18": ("yours = crash_after_commit(", QUERY_RUNS),
    "ju": ("first = judged(", "True"),
    "co": ("after_crash = {", QUERY_RUNS),
    "mo": ("def a_second_failure(", QUERY_RUNS),
    "or": ("listed = sum(", QUERY_RUNS),
}
# Executed in the kernel before the cell. SIGINT is what Jupyter's "interrupt the kernel" sends.
INTERRUPT = """
import os, signal, threading
from contextlib import suppress
def _wait_and_interrupt():
    begun = threading.Event()
    while not begun.wait(0.05):
        with suppress(Exception):
            if {when}:
                begun.set()
    os.kill(os.getpid(), signal.SIGINT)
get_ipython().events.register("pre_run_cell", _begin := lambda info: (
    get_ipython().events.unregister("pre_run_cell", _begin), threading.Thread(target=_wait_and_interrupt).start()))
"""
LEFT = """
import logging
print(len(bench.spark.streams.active) if "bench" in globals() and bench._spark else 0, logging.getLogger().handlers)
"""


class Kernel:
    """A kernel in which the cells of one notebook are executed, in any order and as often as one likes."""

    def __init__(self, client: NotebookClient):
        self._client = client

    def run(self, cell: NotebookNode) -> list[NotebookNode]:
        """Execute the cell and return its outputs."""
        cells = self._client.nb.cells
        index = next((number for number, each in enumerate(cells) if each is cell), len(cells))
        if index == len(cells):
            cells.append(cell)
        self._client.execute_cell(cell, index)
        return list(cell.outputs)

    def ask(self, code: str) -> str:
        """Execute code that is in no lesson, and return what it prints."""
        return said(self.run(nbformat.v4.new_code_cell(code)))


@contextmanager
def kernel_of(path: Path, notebook: NotebookNode) -> Iterator[Kernel]:
    resources = {"metadata": {"path": path.parent}}
    client = NotebookClient(
        notebook, timeout=400, coalesce_streams=True, kernel_name="python3", resources=resources, allow_errors=True
    )
    with client.setup_kernel():
        yield Kernel(client)


def said(outputs: list[NotebookNode]) -> str:
    """Return the text of outputs, less what their pictures say."""
    return "\n".join(each.get("text") or each.get("data", {}).get("text/plain", "") for each in outputs)


def comparable(text: str) -> str:
    """Return the text without what counts up, whatever the lesson does: Kafka's producer ids, and names of `fresh`."""
    lines, end = [], 0
    for line in text.splitlines():
        if "producer id" in line:
            end = line.index("producer id") + len("producer id")
        lines.append(re.sub(r"-?\d+$", lambda found: "#".rjust(len(found[0])), line[:end]) + line[end:])
    text = re.sub(r"(producer_id\W+)\d+", r"\1#", "\n".join(lines))
    return re.sub(r'("sha256": )"\w+"', r"\1#", re.sub(r"\b([a-z]+)\.\d+\b", r"\1", text))  # `fresh` makes job.2 of job


def error_in(outputs: list[NotebookNode]) -> str:
    return "\n".join(f"{each.ename}: {each.evalue}" for each in outputs if each.output_type == "error")


def noise_in(outputs: list[NotebookNode]) -> str:
    return "".join(each.text for each in outputs if each.output_type == "stream" and each.name == "stderr")


def run_interrupted(kernel: Kernel, cell: NotebookNode, when: str) -> None:
    """Interrupt the cell, and see that nothing goes on which would disturb its next run."""
    kernel.ask(INTERRUPT.format(when=when))
    outputs = kernel.run(cell)
    assert error_in(outputs).startswith("KeyboardInterrupt"), (error_in(outputs), noise_in(outputs), said(outputs))
    assert not noise_in(outputs)
    assert kernel.ask(LEFT).strip() == "0 []", "queries that go on, and handlers of the root logger"


def test_only_what_kafka_counts_up_is_not_compared():
    table = "       producer id  epoch\nentry\n1 {}      0"
    one, other = (table.format(number.rjust(16)) for number in ("0", "1001"))
    assert comparable(one) == comparable(other)
    assert comparable(one) != comparable(one.replace("      0", "      1"))
    assert comparable("(id='job-1', producer_id=0, epoch=0)") == comparable("(id='job.2-1', producer_id=7, epoch=0)")
    assert comparable("1.5 s, 24 of 48") != comparable("1.5 s, 56 of 48")


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("lesson_path", NOTEBOOKS, ids=lambda path: path.stem)
def test_cells_can_be_run_again_and_after_an_interrupt(lesson_path):
    lesson = nbformat.read(lesson_path, as_version=4)
    marked, when = INTERRUPTED[lesson_path.name[:2]]
    [to_interrupt] = [cell for cell in lesson.cells if cell.cell_type == "code" and marked in cell.source]
    wrong = []
    with kernel_of(lesson_path, lesson) as kernel:
        for cell in [cell for cell in lesson.cells if cell.cell_type == "code" and cell.source.strip()]:
            if cell is to_interrupt:
                run_interrupted(kernel, cell, when)
            first, second = kernel.run(cell), kernel.run(cell)
            print(cell.source, said(first), error_in(first), said(second), error_in(second), sep="\n---\n")
            compared = "nbval-check-output" in cell.metadata.get("tags", [])
            differs = compared and comparable(said(first)) != comparable(said(second))
            if differs or error_in(first + second) or noise_in(first + second):
                wrong.append(f"{cell.source}\n1: {said(first)}{error_in(first)}\n2: {said(second)}{error_in(second)}")
        assert kernel.ask(LEFT).strip() == "0 []"
    assert not wrong, "\n\n".join(wrong)
