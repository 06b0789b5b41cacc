"""The spark-submit line of the page "Outgrowing one machine" is run as it stands there, with other addresses."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pyspark
import pytest

from labs.equipment.broker import Broker
from labs.equipment.child_process import ChildProcess
from labs.equipment.java import find_java
from labs.equipment.node import QUICK_SPARK
from labs.equipment.spark_cluster import SparkCluster
from labs.equipment.topics import create_topic
from labs.equipment.waiting import eventually
from labs.evidence.auditor.audit import audit
from labs.evidence.auditor.expected import count_by_window
from labs.evidence.readers.results import read_results
from labs.faults.job import events_in
from labs.pipeline.log.generate import classroom
from labs.pipeline.log.replay import close_windows, replay
from labs.pipeline.records import SINK_TOPIC, SOURCE_TOPIC

ROOT = Path(__file__).parents[1]
PAGE = ROOT.joinpath("docs", "outgrowing-one-machine.md").read_text()


def submit_line() -> str:
    [line] = re.findall(r"```sh\n(.*?spark-submit.*?)```", PAGE, re.DOTALL)
    return line


def replaced(line: str, addresses: dict[str, str]) -> str:
    """Replace each address, which must be there, and nothing else."""
    for theirs, ours in addresses.items():
        assert line.count(theirs) == 1, theirs
        line = line.replace(theirs, ours)
    return line


class Submitted(ChildProcess):
    """The page's line, with our addresses; it says what `labs run` says."""

    def __init__(self, line: str, log: Path):
        environment = {**os.environ, "JAVA_HOME": str(find_java().home), "SPARK_MASTER": "local[1]"}
        environment["JDK_JAVA_OPTIONS"] = " ".join(QUICK_SPARK)
        environment.pop("SPARK_HOME", None)
        super().__init__(["bash", "-c", line], log, cwd=ROOT, env=environment)

    def has_begun(self, batch: int) -> bool:
        assert self.pid, self.last_lines()
        return {"event": "begins", "batch": batch} in events_in(self.output())


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.soak
def test_submit_line_counts_exactly_once_on_a_standalone_cluster_with_driver_and_executor_killed(tmp_path):
    checkpoint, accesses = tmp_path / "checkpoint", list(classroom(windows=6, clients=8))
    with Broker() as kafka, SparkCluster() as cluster:
        servers = kafka.bootstrap_servers
        for topic in (SOURCE_TOPIC, SINK_TOPIC):
            create_topic(servers, topic)
        close_windows(replay(accesses, servers).last_time_ms, servers)
        line = replaced(
            submit_line(),
            {
                "spark://spark-master:7077": cluster.master,
                "kafka-0:9092,kafka-1:9092,kafka-2:9092": servers,
                "hdfs://namenode:8020/checkpoints/ip-count-eu": checkpoint.as_uri(),
            },
        ).replace(".venv/bin", os.path.relpath(Path(sys.executable).parent, ROOT))
        line = f"{line.rstrip()} --records-per-batch 80"
        first = Submitted(line, tmp_path / "first.log")
        eventually(lambda: first.has_begun(3), timeout=600)
        first.kill()
        second = Submitted(line, tmp_path / "second.log")
        eventually(lambda: second.has_begun(4), timeout=600)
        cluster.kill_executor()
        assert second.wait(600) == 0, second.last_lines()
        # What spark-submit was told went before SPARK_MASTER and before the lab's own settings.
        assert "Registering app ip-count-eu" in cluster.daemons[0].log_file.read_text()
        assert {each.name for each in (checkpoint / "state" / "0").iterdir()} >= {"0", "1", "2", "3"}
        assert list((checkpoint / "state" / "0" / "0").glob("*.changelog")), "RocksDB kept no changelog"
        verdict = audit(count_by_window(accesses), read_results(servers))
    assert verdict.valid, verdict


def test_page_names_the_versions_that_are_pinned():
    assert set(re.findall(r"_2\.13:([\d.]+)", PAGE)) == {pyspark.__version__}
