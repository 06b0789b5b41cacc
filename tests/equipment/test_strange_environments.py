"""The lab in the environment of somebody else's machine: what is set there for other programs does not reach it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pyspark
import pytest

from labs.equipment.child_process import for_program
from labs.equipment.java import find_java
from labs.equipment.spark import DriverJvm
from labs.equipment.waiting import eventually
from tests.processes import next_line, runs

ROOT = Path(__file__).resolve().parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
BROKEN_JAVA = "-XX:+NoSuchFlag"
START = "from labs.equipment.spark import spark_session; print(spark_session().range(3).count())"
LINE = '192.0.2.{client} - - [10/Oct/2025:13:55:{second:02} +0000] "GET / HTTP/1.1" 200 12\n'
# Starts a JVM that cannot come up and does not end, as on a machine where this is the lab's environment; says its id.
HANGING = """
import os, sys
from pathlib import Path
from labs.equipment.spark import DriverJvm
print(DriverJvm(sys.argv[1], {}, dict(os.environ), Path(sys.argv[2], "log")).process.pid, flush=True)
sys.stdin.read()
"""


def spark_of_somebody_else(place: Path) -> dict[str, str]:
    conf = place / "conf"
    conf.mkdir()
    (conf / "core-site.xml").write_text(
        "<configuration><property><name>fs.defaultFS</name><value>hdfs://nowhere.invalid:8020</value></property>"
        "</configuration>"
    )
    (conf / "spark-defaults.conf").write_text("spark.master yarn\nspark.jars.packages no.such:package:1\n")
    (conf / "spark-env.sh").write_text("echo from spark-env; exit 3\n")
    (conf / "log4j2.properties").write_text("rootLogger.level = trace\n")
    return {
        "HADOOP_CONF_DIR": str(conf),
        "YARN_CONF_DIR": str(conf),
        "HADOOP_HOME": str(place),
        "HADOOP_USER_NAME": "somebody",
        "SPARK_CONF_DIR": str(conf),
        "SPARK_HOME": str(place),
        "SPARK_LOCAL_IP": "203.0.113.1",
        "SPARK_LOCAL_HOSTNAME": "nowhere.invalid",
        "SPARK_LOCAL_DIRS": "/proc/none",
        "SPARK_MASTER_HOST": "nowhere.invalid",
        "SPARK_REMOTE": "sc://nowhere.invalid",
        "SPARK_SUBMIT_OPTS": BROKEN_JAVA,
        "SPARK_LAUNCHER_OPTS": BROKEN_JAVA,
        "SPARK_TESTING": "1",
        "PYSPARK_SUBMIT_ARGS": "--packages g:a:1",
        "PYSPARK_PYTHON": "/bin/false",
        "PYSPARK_DRIVER_PYTHON": "/bin/false",
        "PYSPARK_PIN_THREAD": "false",
    }


def java_and_shell_of_somebody_else(place: Path) -> dict[str, str]:
    (place / "bashrc").write_text("echo from bashrc; exit 3\n")
    return {
        "JAVA_TOOL_OPTIONS": BROKEN_JAVA,
        "_JAVA_OPTIONS": BROKEN_JAVA,
        "JDK_JAVA_OPTIONS": BROKEN_JAVA,
        "CLASSPATH": str(place),
        "KAFKA_OPTS": BROKEN_JAVA,
        "KAFKA_HEAP_OPTS": "-Xmx1k",
        "LOG_DIR": "/proc/none",
        "LOG4J_CONFIGURATION_FILE": "/proc/none",
        "BASH_ENV": str(place / "bashrc"),
        "ENV": str(place / "bashrc"),
        "CDPATH": str(place),
        "http_proxy": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
        "TZ": "Asia/Kathmandu",
    }


def odd_places(place: Path) -> dict[str, str]:
    (temporary := place / 'tmp café "1" \\2').mkdir()
    (place / "a cache, é").symlink_to(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"))
    (place / "jars é").symlink_to(Path(os.environ.get("JGO_CACHE_DIR") or Path.home() / ".cache" / "jgo"))
    return {
        "LC_ALL": "C",
        "TMPDIR": str(temporary),
        "XDG_CACHE_HOME": str(place / "a cache, é"),
        "JGO_CACHE_DIR": str(place / "jars é"),
        "HOME": str(place / "nobody's home"),
        "USER": "",
    }


def python_of_somebody_else(place: Path) -> dict[str, str]:
    (place / "pyspark").mkdir()
    (place / "pyspark" / "__init__.py").touch()
    (place / "json.py").write_text("raise SystemExit('the json of the current directory')\n")
    (place / "startup.py").write_text("raise SystemExit('started up')\n")
    return {
        "LC_ALL": "xx_XX.ISO-8859-1",
        "PYTHONWARNINGS": "error",
        "PYTHONHASHSEED": "7",
        "PYTHONSTARTUP": str(place / "startup.py"),
        "PYTHONIOENCODING": "ascii",
        "PYTHONUTF8": "0",
        "PYTHONPATH": str(place / "nothing"),
        "TZ": ":/no/such/zone",
    }


@pytest.mark.long
@pytest.mark.parametrize(
    "strange", [spark_of_somebody_else, java_and_shell_of_somebody_else, odd_places, python_of_somebody_else]
)
def test_a_log_is_counted_as_anywhere(tmp_path, strange):
    log = tmp_path / "café.log"
    log.write_text("".join(LINE.format(client=n % 2, second=n) for n in range(20)))
    (place := tmp_path / "place").mkdir()
    environment = {**os.environ, **strange(place)}
    before = set(psutil.pids())
    command = [sys.executable, "-m", "labs", "count", str(log), "--json"]
    ran = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr
    counted = [(row["window_start"], row["ip"], row["count"]) for row in json.loads(ran.stdout)["counts"]]
    expected = [
        (f"2025-10-10T13:55:{second:02}Z", f"192.0.2.{client}", 2 + (second // 5 + client + 1) % 2)
        for second in range(0, 20, 5)
        for client in (0, 1)
    ]
    assert counted == expected
    eventually(lambda: not _javas(set(psutil.pids()) - before, str(tmp_path)), timeout=60)


IN_THE_EXECUTORS = """
import os, sys
from labs.equipment.spark import spark_session
def look(_):
    yield sys.executable, [name for name in os.environ if name.startswith(("HADOOP", "JAVA_TOOL", "PYTHONO"))]
print([sys.executable, []] == list(spark_session().sparkContext.parallelize([1], 1).mapPartitions(look).first()))
"""


@pytest.mark.long
@pytest.mark.soak
def test_executors_and_their_python_are_the_labs_too(tmp_path):
    strange = {
        **spark_of_somebody_else(tmp_path),
        **java_and_shell_of_somebody_else(tmp_path),
        **python_of_somebody_else(tmp_path),
        "SPARK_MASTER": "local-cluster[1,1,1024]",
        "PYTHONPATH": str(ROOT),
        "PYTHONOPTIMIZE": "1",
        "PYTHONWARNINGS": "",
    }
    command = [sys.executable, "-c", IN_THE_EXECUTORS]
    ran = subprocess.run(command, cwd=ROOT, env={**os.environ, **strange}, capture_output=True, text=True)
    assert ran.stdout.split() == ["True"], ran.stderr


def _javas(pids: set[int], of: str) -> list[int]:
    """Return those of the processes that are Javas which name this place in their command."""
    found = []
    for pid in pids:
        try:
            command = psutil.Process(pid).cmdline()
        except psutil.Error:
            continue
        if any(of in part for part in command) and "java" in Path(command[0]).name:
            found.append(pid)
    return found


@pytest.mark.skipif(shutil.which("unshare") is None, reason="nothing here gives a process the id of nobody known")
def test_a_user_whom_the_machine_does_not_know_is_told_so(tmp_path):
    command = ["unshare", "--user", "--map-user=12345", sys.executable, "-c", START]
    if subprocess.run([*command[:3], "true"]).returncode:
        pytest.skip("this machine allows no namespaces of users")
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert "user 12345 has no name on this machine" in (told := ran.stderr.splitlines()[-1])
    assert ">> /etc/passwd" in told


@pytest.fixture
def cannot_come_up(tmp_path):
    """An environment in which a JVM cannot enter its directory, fails, and does not end; and that directory."""
    (place := tmp_path / "café").mkdir()
    return {**for_program(JAVA_HOME=str(find_java().home), SPARK_HOME=str(SPARK_HOME)), "LC_ALL": "C"}, place


@pytest.mark.long
def test_a_jvm_that_fails_and_does_not_end_is_noticed_and_can_be_ended(cannot_come_up):
    environment, place = cannot_come_up
    jvm = DriverJvm(str(SPARK_HOME), {}, environment, place / "log")
    with jvm.given_up_after(300):
        assert jvm.connect(interrupted=lambda: False) is None
    assert "InvalidPathException" in (place / "log").read_text()
    assert jvm.process.poll() is None
    jvm.kill()
    assert (jvm.given_up, jvm.process.returncode) == (False, -signal.SIGKILL)


GIVEN_UP = """
from labs.equipment import spark
spark.LONGEST_START = 0.5
try:
    spark.spark_session()
except spark.SparkError as error:
    print(error)
spark.LONGEST_START = 600
print(spark.spark_session().range(3).count())
"""


@pytest.mark.long
def test_a_session_that_was_given_up_can_be_started_again():
    ran = subprocess.run([sys.executable, "-c", GIVEN_UP], cwd=ROOT, capture_output=True, text=True)
    [told, count] = ran.stdout.splitlines()
    assert told.startswith("Spark's Java did not answer within 0.5 s, and was ended: ")
    assert count == "3"
    assert ran.stderr == ""


@pytest.mark.long
def test_ctrl_c_is_heeded_while_a_jvm_does_not_come_up(cannot_come_up):
    environment, place = cannot_come_up
    jvm = DriverJvm(str(SPARK_HOME), {}, environment, place / "log")
    assert jvm.connect(interrupted=lambda: True) is None
    jvm.kill()
    assert jvm.process.returncode == -signal.SIGKILL


@pytest.mark.long
def test_a_jvm_that_does_not_come_up_does_not_outlive_who_started_it(cannot_come_up):
    environment, place = cannot_come_up
    with subprocess.Popen(
        [sys.executable, "-c", HANGING, str(SPARK_HOME), str(place)],
        env={**environment, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        pid = int(next_line(parent.stdout))
        eventually(lambda: "InvalidPathException" in (place / "log").read_text(), timeout=120)
        parent.send_signal(signal.SIGKILL)
    eventually(lambda: not runs(pid), timeout=90)
