"""In a long run a JVM uses all of its compilers, or the engines would be compared where both are slow."""

from __future__ import annotations

import contextlib

import psutil
import pytest

from labs.engines.catalogue import ENGINES
from labs.engines.engine import Work
from labs.equipment.node import QUICK_SPARK
from labs.equipment.waiting import eventually
from tests.engines.conftest import USABLE

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("installed")]

MAIN = ("org.apache.spark.deploy.SparkSubmit", "org.apache.flink.client.python.PythonGatewayServer", "IpCount")
PREPARES = "org.apache.spark.launcher.Main"


@pytest.mark.parametrize("engine", [name for name in USABLE if name != "quix"])
@pytest.mark.parametrize("long_run", [False, True])
def test_a_run_has_the_quick_compiler_alone_unless_it_is_long(engine, long_run, broker, topic, tmp_path):
    work = Work(broker.bootstrap_servers, topic(), topic(), tmp_path / "a folder", "compilers", long_run=long_run)
    running = ENGINES[engine].start(work)
    try:
        [java] = eventually(lambda: javas(running.group), 120)
    finally:
        running.close()
    assert set(QUICK_SPARK) & set(java) == (set() if long_run else set(QUICK_SPARK))


def javas(group: int) -> list[list[str]]:
    """Return the command lines of the JVMs of an engine's group that do its work; other ones only prepare a start."""
    lines, leader = [], psutil.Process(group)
    for process in (leader, *leader.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            lines.append(process.cmdline())
    return [
        line for line in lines if line and line[0].endswith("java") and set(line) & set(MAIN) and PREPARES not in line
    ]
