"""The lowest versions that pyproject.toml allows: the sink runs with them, by each writer."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from labs.equipment.java import find_java
from tests.sink.conftest import numbers_in

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
FROM_SOURCE = ("pyspark", "exactly-once-kafka")  # there are no wheels of these
ROWS, BATCHES = 500, 2

RUN = f"""
import sys
from pyspark.sql import SparkSession
from exactly_once_kafka import ExactlyOnceKafkaSink

servers, topic, writers = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", {ROWS}).load()
sink = ExactlyOnceKafkaSink(topic, topic, bootstrap_servers=servers, writers=writers, driver_rows=0)
rows = numbers.selectExpr("string(value) AS value").where("value < {ROWS * BATCHES}")
query = rows.writeStream.option("checkpointLocation", topic).foreachBatch(sink).start()
while not query.awaitTermination(0.1):
    if query.lastProgress and query.lastProgress["batchId"] >= {BATCHES}:
        query.stop()
        break
print(sink.writers, sink._next_batch.executors_can)
"""

# A request's buffer grows with it: at some sizes of a record batch, kafka-python up to 3.0.4 wrote beyond its end.
SIZES = """
from exactly_once_kafka.executors.produce_requests import ProduceRequests
from kafka.future import Future

sizes, requests = [*range(65_000, 66_000), *range(131_000, 131_100), *range(1_048_400, 1_048_600)], []
for size in sizes:
    produces = ProduceRequests(lambda request, node: requests.append(request) or Future())
    produces.add(0, "a-sink", "topic", 0, bytes(size))
    produces.send()
    requests[-1].with_header(correlation_id=1, client_id="client")
    assert len(requests[-1].encode(header=True)) > size
print(len(requests) == len(sizes))
"""


@pytest.fixture(scope="module")
def lowest(tmp_path_factory) -> Path:
    """Return the Python of an environment with the lowest versions allowed that have wheels for this Python."""
    directory = tmp_path_factory.mktemp("lowest")
    shutil.copytree(ROOT, directory / "source", ignore=shutil.ignore_patterns(".*", "notebooks", "tests", "*.egg-info"))
    python = directory / "venv" / "bin" / "python"
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, directory / "venv"], check=True)
    wheels = ["--only-binary", ":all:", *(option for name in FROM_SOURCE for option in ("--no-binary", name))]
    install = [UV, "pip", "install", "--quiet", "--python", python, "--resolution", "lowest-direct", *wheels]
    subprocess.run([*install, directory / "source"], check=True)
    return python


def output(python: Path, directory: Path, code: str, *arguments: str) -> list[str]:
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environment |= {"JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(python)}
    ran = subprocess.run(
        [python, "-c", code, *arguments], cwd=directory, env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout.split()


def test_lowest_versions_are_older_than_those_of_the_lab(lowest):
    listed = subprocess.run([UV, "pip", "freeze", "--python", lowest], check=True, capture_output=True, text=True)
    installed = dict(re.findall(r"^(\S+)==(\S+)$", listed.stdout, re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [re.split(r"[<>=]", each)[0] for each in project["dependencies"]]
    assert [name for name in names if installed[name] == version(name)] == []


def test_request_of_any_size_is_made(lowest, tmp_path):
    assert output(lowest, tmp_path, SIZES) == ["True"]


@pytest.mark.parametrize("writers", ["driver", "executors"])
def test_sink_runs(lowest, broker, topic, tmp_path, writers):
    to = topic(partitions=3)
    assert output(lowest, tmp_path, RUN, broker.bootstrap_servers, to, writers) == [writers, "True"]
    assert sorted(numbers_in(broker.bootstrap_servers, to)) == list(range(ROWS * BATCHES))
