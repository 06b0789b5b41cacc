"""A lesson that is interrupted in the middle leaves no process behind, and can be run again from its top.

`make test-all` interrupts a bench that opens, a query, and one lesson; `make soak` every lesson.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from random import Random

import psutil
import pytest
from jupyter_client.manager import start_new_kernel

from labs.equipment.waiting import eventually
from tests.lessons import LESSONS, cells

pytestmark = pytest.mark.long

MOMENTS = ((5, 25), (15, 60))  # seconds from a lesson's top, between which it is interrupted

OPEN = """
from labs.lesson import (
    SOURCE_TOPIC, AtLeastOnceKafkaSink, classroom, close_windows, count_ips, create_topic, open_bench, read_results,
    read_source, replay,
)
bench = open_bench(proxy=True)
"""
COUNT = """
import tempfile
create_topic(bench.servers, SOURCE_TOPIC, partitions=1)
create_topic(bench.servers, "results", partitions=1)
accesses = list(classroom(windows=2, clients=2))
close_windows(replay(accesses, bench.servers).last_time_ms, bench.servers)
sink = AtLeastOnceKafkaSink("results", bootstrap_servers=bench.servers)
def slow(rows, batch_id):
    print("batch", batch_id, flush=True)
    while WAIT:  # until the query is stopped, in its JVM's very first task or in a later one
        rows.count()
    sink(rows, batch_id)
query = count_ips(read_source(bench.spark, bench.servers)).writeStream.foreachBatch(slow)
query.option("checkpointLocation", tempfile.mkdtemp()).trigger(availableNow=True).start().awaitTermination()
print(len(read_results(bench.servers, "results")), "results")
"""


@pytest.fixture
def kernel():
    manager, client = start_new_kernel(extra_arguments=["--IPKernelApp.matplotlib=inline"])
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def children(manager) -> list[psutil.Process]:
    """Return what runs below the kernel, less what has ended and was not asked about."""
    found = []
    for process in psutil.Process(manager.provisioner.process.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended while we looked
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def command_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def run(client, code: str, until: str | None = None, timeout: float = 240) -> tuple[str, str]:
    """Execute a cell and return (how it ended, what it printed); with `until`, return once that was printed."""
    said, ended = [], "ok"
    sent = client.execute(code)
    while True:
        message = client.get_iopub_msg(timeout=timeout)
        kind, content = message["msg_type"], message["content"]
        if message["parent_header"].get("msg_id") != sent and kind != "stream":
            continue  # a stream may come from a thread, which belongs to no cell
        if kind == "stream":
            said.append(content["text"])
            if until and until in "".join(said):
                return "running", "".join(said)
        elif kind == "error":
            said.append("\n".join(content["traceback"]))
            ended = "error"
        elif kind == "status" and content["execution_state"] == "idle":
            return ended, "".join(said)


def is_idle(client) -> None:
    assert run(client, "pass")[0] == "ok"


@pytest.mark.timeout(400)
def test_interrupted_anywhere_it_runs_again_from_its_top_and_ends_with_its_kernel(kernel):
    manager, client = kernel
    client.execute(OPEN)  # interrupted as soon as there is something that could be left
    eventually(lambda: children(manager), timeout=120)
    manager.interrupt_kernel()
    is_idle(client)

    assert run(client, OPEN)[0] == "ok"
    running, _ = run(client, f"WAIT = True\n{COUNT}", until="batch 0")
    assert running == "running"
    manager.interrupt_kernel()
    is_idle(client)

    for cell in (OPEN, f"WAIT = False\n{COUNT}"):
        ended, said = run(client, cell)
        assert ended == "ok", said
    assert said.splitlines()[-1] == "4 results", "a query of the run before wrote into the new one's topic"
    left = [process for process in children(manager) if "kafka.Kafka" in command_of(process)]
    assert len(left) == 1, "the brokers of the interrupted runs are still there"

    everything = children(manager)
    os.kill(manager.provisioner.process.pid, signal.SIGKILL)
    gone, alive = psutil.wait_procs(everything, timeout=60)
    assert not alive, [command_of(process)[:200] for process in alive]
    assert len(gone) >= 2


def run_from_its_top(client, lesson: list[str]) -> str:
    """Execute the cells until one fails, and return what that one said."""
    for cell in lesson:
        ended, said = run(client, cell)
        if ended == "error":
            return f"{said}\nin the cell\n{cell}"
    return ""


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("lesson_path", sorted(LESSONS.glob("*.ipynb")), ids=lambda path: path.stem)
@pytest.mark.soak
def test_lesson_interrupted_anywhere_runs_again_from_its_top_and_leaves_no_process(kernel, lesson_path):
    manager, client = kernel
    run(client, f"%cd -q {lesson_path.parent}")
    lesson, random = cells(lesson_path, "code"), Random(lesson_path.stem)
    for earliest, latest in MOMENTS:
        strike = threading.Timer(random.uniform(earliest, latest), manager.interrupt_kernel)
        strike.start()
        run_from_its_top(client, lesson)
        strike.join()  # a lesson that was quicker is interrupted between two cells
        is_idle(client)
    failure = run_from_its_top(client, lesson)
    assert not failure, failure
    # Spark's JVM stays until the kernel ends, which takes it along: the test above. So does the reaper of its files.
    others = lambda: [each for each in children(manager) if " reaper " not in command_of(each)]  # noqa: E731
    with contextlib.suppress(TimeoutError):
        eventually(lambda: all("org.apache.spark" in command_of(each) for each in others()), timeout=60)
    left = [f"{each.ppid()} > {each.pid} {command_of(each)}" for each in others()]
    assert len(left) <= 1, left
    assert all("org.apache.spark" in command for command in left), left
