"""The sink as a library: its public face, what importing and installing it brings, and its example, killed."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import exactly_once_kafka
from labs.equipment.java import find_java
from labs.equipment.node import QUICK_SPARK
from labs.equipment.waiting import eventually
from tests.sink.conftest import numbers_in

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
OF_PANDAS = ("pandas", "python-dateutil", "pytz", "tzdata")
NEEDED = ("pyspark", "py4j", "pyarrow", "numpy", "confluent-kafka", "kafka-python", "google-crc32c", *OF_PANDAS)


def test_exported_names():
    assert exactly_once_kafka.__all__ == [
        "FAULT_POINTS",
        "Batch",
        "BatchFailed",
        "BatchSink",
        "ExactlyOnceKafkaSink",
        "Marker",
        "SinkRefused",
    ]
    assert all(hasattr(exactly_once_kafka, name) for name in exactly_once_kafka.__all__)


def test_name_that_is_not_there():
    with pytest.raises(AttributeError, match="has no attribute 'Sink'"):
        exactly_once_kafka.Sink  # noqa: B018


@pytest.mark.bench
def test_fault_points_cost_no_pyspark():
    code = "import sys, exactly_once_kafka.points; print('pyspark' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    loaded = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == ["False"]


def test_constructor():
    parameters = inspect.signature(exactly_once_kafka.ExactlyOnceKafkaSink).parameters.values()
    by_position = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    required = [p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    assert by_position == ["name", "topic"]
    assert required == ["name", "bootstrap_servers"]
    assert {"marker_topic", "batch_headers", "writers", "driver_rows", "points", "options"} <= {
        p.name for p in parameters
    }


def test_version_is_the_packages_and_the_changelogs():
    current = exactly_once_kafka.__version__
    assert f'version = "{current}"' in (ROOT / "pyproject.toml").read_text()
    assert f"## [{current}]" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.bench
@pytest.mark.parametrize(("writers", "needed"), [("driver", {"kafka"}), ("executors", {"kafka", "urllib.request"})])
def test_sink_loads_nothing_that_it_does_not_need(writers, needed):
    foreign = {"labs", "pandas", "kafka", "matplotlib", "IPython", "sqlalchemy", "rich", "psutil", "urllib.request"}
    make = f"ExactlyOnceKafkaSink('name', 'topic', bootstrap_servers='127.0.0.1:1', writers={writers!r})"
    code = f"import sys, exactly_once_kafka; exactly_once_kafka.{make}; print(*({foreign!r} & set(sys.modules)))"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    loaded = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert set(loaded.stdout.split()) <= needed


def environment_with_the_sink(directory: Path, *options: str | Path) -> Path:
    """Make an environment in which nothing but the library is installed, with uv's `options`; return its Python."""
    shutil.copytree(ROOT, directory / "source", ignore=shutil.ignore_patterns(".*", "notebooks", "tests", "*.egg-info"))
    python = directory / "venv" / "bin" / "python"
    run: dict[str, Any] = {"check": True, "capture_output": True, "text": True}
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, directory / "venv"], **run)
    install = [UV, "pip", "install", "--quiet", "--python", python, *options, directory / "source"]
    subprocess.run(install, **run)
    return python


@pytest.fixture(scope="module")
def empty_environment(tmp_path_factory) -> Path:
    """Return the Python of an environment with the versions that this one has.

    Their wheels are at hand: pyspark's takes a minute to build.
    """
    directory = tmp_path_factory.mktemp("environment")
    versions = directory / "versions"
    versions.write_text("".join(f"{name}=={version(name)}\n" for name in NEEDED))
    return environment_with_the_sink(directory, "--constraint", versions)


@pytest.mark.long
def test_installing_it_brings_only_what_it_needs(empty_environment):
    listed = subprocess.run(
        [UV, "pip", "freeze", "--python", empty_environment], check=True, capture_output=True, text=True
    )
    installed = {re.split("==| @ ", line)[0] for line in listed.stdout.splitlines()}
    assert installed == {"exactly-once-kafka", *NEEDED}


class Example:
    """The README's example as a script in the empty environment, to be killed."""

    def __init__(self, python: Path, directory: Path, servers: str, topic: str):
        [code] = re.findall(r"```python\n(.*?)```", (ROOT / "exactly_once_kafka" / "README.md").read_text(), re.S)
        assert 'bootstrap_servers="127.0.0.1:9092"' in code
        self.servers, self.topic = servers, topic
        self._code = code.replace("127.0.0.1:9092", servers).replace('"orders"', f'"{topic}"')
        self._python, self._directory = python, directory
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """Start it, with these further options of the sink."""
        code = re.sub(r'(bootstrap_servers="[^"]*")', ", ".join([r"\1", *options]), self._code)
        (self._directory / "example.py").write_text(code)
        environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        environment["PYSPARK_PYTHON"] = str(self._python)  # as in an activated environment; PATH has another python3
        environment |= {"JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1"}
        environment["JDK_JAVA_OPTIONS"] = " ".join([*QUICK_SPARK, f'"-Djava.io.tmpdir={self._directory}"'])
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._python, "example.py"],
                cwd=self._directory,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        if self._process:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(30)
            self._process = None

    def said(self) -> str:
        return (self._directory / "log").read_text()

    def runs(self) -> bool:
        assert self._process
        assert self._process.poll() is None, self.said()[-2000:]
        return True


@pytest.mark.long
@pytest.mark.timeout(900)
def test_readmes_example_killed_and_started_again_with_executors_publishes_each_number_once(
    empty_environment, broker, topic, tmp_path
):
    kill_and_start_again(Example(empty_environment, tmp_path, broker.bootstrap_servers, topic()))


@pytest.mark.long
@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_readmes_example_does_so_with_the_lowest_versions_that_may_be_installed(broker, topic, tmp_path):
    (there := tmp_path / "environment").mkdir()
    lowest = environment_with_the_sink(there, "--resolution", "lowest-direct")
    freeze = subprocess.run([UV, "pip", "freeze", "--python", lowest], check=True, capture_output=True, text=True)
    bounds = re.findall(r'^    "([\w-]+)>=([\d.]+)', (ROOT / "pyproject.toml").read_text(), re.M)
    installed = dict(line.split("==") for line in freeze.stdout.splitlines() if "==" in line)
    assert [name for name, bound in bounds if not installed[name].startswith(bound)] == []
    kill_and_start_again(Example(lowest, tmp_path, broker.bootstrap_servers, topic()))


def kill_and_start_again(example: Example) -> None:
    """Run the example with both writers, with a SIGKILL in between, and see that each number is published once."""

    def numbers() -> list[int]:
        return numbers_in(example.servers, example.topic)

    try:
        example.start()
        eventually(lambda: example.runs() and len(numbers()) >= 3, timeout=300, interval=1)
        example.kill()
        before = len(numbers())
        example.start('writers="executors"', "driver_rows=0")
        eventually(lambda: example.runs() and len(numbers()) >= before + 3, timeout=300, interval=1)
    finally:
        example.kill()
    published = numbers()
    assert sorted(published) == list(range(len(published)))
    assert "the driver writes" not in example.said(), "the warning where executors cannot"
