"""What the lab's children inherit, where the lab keeps things, and what it says of a Java or a package in the way."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from labs.commands.main import print_whatever_the_locale
from labs.equipment import child_process, doctor, foreign_packages, spark
from labs.equipment.child_process import cache, drop_what_is_for_another, for_program, for_python, home
from labs.equipment.java import REPEAT, cure, innermost_cause
from labs.equipment.spark import _quoted

ROOT = Path(__file__).resolve().parents[2]
FOR_ANOTHER = (
    *("HADOOP_CONF_DIR", "HADOOP_HOME", "HADOOP_USER_NAME", "YARN_CONF_DIR", "HIVE_CONF_DIR"),
    *("SPARK_CONF_DIR", "SPARK_HOME", "SPARK_LOCAL_IP", "SPARK_SUBMIT_OPTS", "SPARK_MASTER_HOST", "SPARK_REMOTE"),
    *("PYSPARK_PYTHON", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "_PYSPARK_DRIVER_CONN_INFO_PATH"),
    *("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH", "LOG4J_LEVEL"),
    *("BASH_ENV", "ENV", "CDPATH", "SHELLOPTS", "BASH_FUNC_which%%", "FLINK_CONF_DIR", "Quix__Broker__Address"),
)
OF_PYTHON = ("PYTHONHOME", "PYTHONSTARTUP", "PYTHONWARNINGS", "PYTHONHASHSEED", "PYTHONOPTIMIZE", "PYTHONIOENCODING")
THE_LABS = ("PATH", "JAVA_HOME", "KAFKA_BOOTSTRAP_SERVERS", "SPARK_MASTER", "https_proxy", "TMPDIR", "XDG_CACHE_HOME")


@pytest.fixture
def everything_set(monkeypatch):
    for name in (*FOR_ANOTHER, *OF_PYTHON, *THE_LABS):
        monkeypatch.setenv(name, "set")


def test_a_program_inherits_the_labs_settings_and_nobody_elses(everything_set):
    inherited = for_program()
    assert [name for name in (*FOR_ANOTHER, *OF_PYTHON) if name in inherited] == []
    assert [name for name in THE_LABS if name not in inherited] == []
    assert inherited["LC_ALL"] == "C.UTF-8"
    assert for_program(SPARK_LOCAL_IP="127.0.0.1")["SPARK_LOCAL_IP"] == "127.0.0.1"


def test_a_python_of_the_labs_runs_the_labs_modules_and_is_no_part_of_another_driver(everything_set):
    inherited = for_python()
    assert [name for name in OF_PYTHON if name in inherited] == []
    assert inherited["PYTHONPATH"] == str(ROOT)
    assert "PYSPARK_GATEWAY_PORT" not in inherited
    assert inherited["HADOOP_CONF_DIR"] == "set"  # its session decides, which knows the master


def test_this_process_keeps_the_master_and_loses_what_pyspark_would_read(monkeypatch):
    monkeypatch.setattr("os.environ", environment := dict.fromkeys((*FOR_ANOTHER, *THE_LABS), "set"))
    drop_what_is_for_another()
    assert set(environment) == set(THE_LABS)


def test_every_process_of_the_labs_gets_its_environment_there():
    """A new `os.environ` given to a child would bring all of it back. A job that the judge runs is the user's own."""
    handed_on = [
        str(file.relative_to(ROOT))
        for file in (ROOT / "labs").rglob("*.py")
        if "**os.environ" in (text := file.read_text()) or "dict(os.environ)" in text or "os.environ.items()" in text
    ]
    own = ["labs/equipment/child_process.py", "labs/equipment/spark.py"]
    assert sorted(handed_on) == [*own, "labs/judging/judged_job.py"]


@pytest.mark.parametrize("named", ["", "relative", "missing/home"])
def test_who_has_no_home_has_one_below_tmpdir(monkeypatch, tmp_path, named):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("HOME", named and str(tmp_path / named) if named != "relative" else named)
    if not named:
        monkeypatch.setattr(Path, "home", _no_home)
    assert home() == tmp_path / f"exactly-once-lab-{os.getuid()}"
    assert home().stat().st_mode & 0o777 == 0o700
    if named != "missing/home":
        assert cache("jgo") == home() / ".cache" / "jgo" or named == "relative"


def _no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_a_home_below_tmpdir_that_somebody_else_has_made_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(Path, "home", _no_home)
    (tmp_path / "theirs").mkdir()
    (tmp_path / f"exactly-once-lab-{os.getuid()}").symlink_to(tmp_path / "theirs")
    with pytest.raises(PermissionError, match="set HOME to a directory of yours"):
        home()


def test_a_cache_is_where_xdg_says_if_that_can_be(monkeypatch, tmp_path):
    assert cache("lab", str(tmp_path)) == tmp_path / "lab"
    (tmp_path / "file").touch()
    monkeypatch.setattr(child_process.os, "access", lambda *_: False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert cache("lab", str(tmp_path)) == home() / ".cache" / "lab"
    (tmp_path / "lab").mkdir()
    assert cache("lab", str(tmp_path)) == tmp_path / "lab"  # it can be read all the same
    monkeypatch.undo()
    assert cache("lab", "relative") == Path.home() / ".cache" / "lab"  # as XDG wants it


@pytest.mark.parametrize(
    ("printed", "cause"),
    [
        (
            "WARNING: Using incubator modules\n"
            'Exception in thread "main" java.lang.IllegalArgumentException: basedir must be absolute: ?/.ivy2/local\n'
            "\tat java.base/some.Class",
            "java.lang.IllegalArgumentException: basedir must be absolute: ?/.ivy2/local",
        ),
        (
            "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
            ": org.apache.spark.SparkException: outer\n\tat some.Class\nCaused by: java.io.IOException: middle\n"
            "\t... 3 more\nCaused by: java.net.BindException: innermost\n\t... 5 more\n",
            "java.net.BindException: innermost",
        ),
        (
            "Unrecognized VM option 'NoSuchFlag'\nError: Could not create the Java Virtual Machine.\n"
            "Error: A fatal exception has occurred. Program will exit.\n",
            "Unrecognized VM option 'NoSuchFlag'",
        ),
        (
            "Error occurred during initialization of VM\nCould not reserve enough space for object heap\n",
            "Could not reserve enough space for object heap",
        ),
        ("12:00:00.000 WARN  Utils: Your hostname\n\n", None),
        ("", None),
    ],
)
def test_the_innermost_cause_is_one_line(printed, cause):
    assert innermost_cause(printed) == cause


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        ("Could not allocate compressed class space: 1073741824 bytes", "ulimit -v"),
        ("java.io.IOException: No space left on device", "TMPDIR"),
        ("java.net.BindException: Cannot assign requested address", "127.0.0.1"),
        ("anything else", REPEAT),
    ],
)
def test_a_cause_has_a_cure_that_fits_it(cause, expected):
    assert expected in cure(cause)
    assert cure(cause, ["YARN_CONF_DIR", "SPARK_CONF_DIR"]).endswith("this Spark: SPARK_CONF_DIR, YARN_CONF_DIR")


def test_an_option_of_java_survives_sparks_cutting():
    assert _quoted('-Da=/a b/"c"\\d') == '"-Da=/a b/\\"c\\"\\\\d"'


def test_an_archive_in_a_folder_with_a_blank_is_one_option(monkeypatch):
    monkeypatch.setattr(spark, "archive_options", lambda name: (f"-XX:SharedArchiveFile=/a cache/{name}.jsa", "-Xa"))
    options = spark._quick_classes({"spark.driver.extraJavaOptions": "-Xb"})["spark.driver.extraJavaOptions"]
    assert shlex.split(options) == ["-Xb", "-XX:SharedArchiveFile=/a cache/spark.jsa", "-Xa"]


def test_a_cluster_that_the_master_names_keeps_what_was_set_for_it(monkeypatch):
    environment = {**os.environ, **dict.fromkeys(("HADOOP_CONF_DIR", "PYSPARK_PYTHON", "SPARK_LOCAL_IP"), "set")}
    monkeypatch.setattr("os.environ", dict(environment))
    kept = spark._environment("yarn", here=False)
    assert (kept["HADOOP_CONF_DIR"], kept["PYSPARK_PYTHON"], kept["SPARK_LOCAL_IP"]) == ("set", "set", "set")
    own = spark._environment("local[2]", here=True)
    assert "HADOOP_CONF_DIR" not in own
    assert (own["PYSPARK_PYTHON"], own["SPARK_LOCAL_IP"]) == (sys.executable, "127.0.0.1")


def test_a_package_that_hides_an_installed_one_is_named_with_its_place(monkeypatch, tmp_path):
    assert foreign_packages.foreign_packages() == ""
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code = "from labs.equipment.foreign_packages import foreign_packages as f; print(f())"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True).stdout
    assert said.startswith(f"pyspark is that of {tmp_path}, which PYTHONPATH names")
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")  # under spark-submit it is meant so
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT).stdout == "\n"


@pytest.mark.parametrize("command", [["doctor"], ["count", "access.log"]])
def test_a_stub_in_the_place_of_pyspark_is_one_clear_line(tmp_path, command):
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").touch()
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    ran = subprocess.run(
        [sys.executable, "-m", "labs", *command], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert ran.returncode == 1
    assert f"pyspark is that of {tmp_path}, which PYTHONPATH names" in ran.stdout + ran.stderr
    assert "Unset PYTHONPATH" in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("shadowing", ["json.py", "pyspark.py", "argparse.py"])
def test_what_lies_in_the_current_directory_is_not_taken_for_a_module(tmp_path, shadowing):
    (tmp_path / shadowing).write_text("raise SystemExit('not meant for the lab')\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "labs", "count", "no-such.log"]
    ran = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert "cannot read log 'no-such.log'" in ran.stderr


def test_a_deleted_directory_is_one_clear_line(tmp_path):
    (gone := tmp_path / "gone").mkdir()
    command = ["/bin/sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", sys.executable, "-m", "labs", "doctor"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, env=environment, cwd=gone, capture_output=True, text=True)
    assert ran.stderr == "python -m labs doctor: the current directory has been deleted; change to another one\n"


def test_what_the_terminal_cannot_show_is_written_in_ascii(monkeypatch):
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding="ascii"))
    print_whatever_the_locale()
    print("café ✓ \udcc3", flush=True)
    assert printed.getvalue() == b"caf\\xe9 \\u2713 \\udcc3\n"


def test_a_python_without_asserts_is_told(tmp_path):
    """kafka-python reads Kafka's answers in one: each waits for its whole timeout."""
    environment = {**os.environ, "PYTHONOPTIMIZE": "1"}
    code = "from labs.equipment.doctor import MACHINE; MACHINE[0].look()"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert "Unset PYTHONOPTIMIZE" in ran.stderr
    (log := tmp_path / "access.log").write_text('192.0.2.1 - - [10/Oct/2025:13:55:36 +0000] "GET / HTTP/1.1" 200 12\n')
    command = [sys.executable, "-m", "labs", "count", str(log)]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert "unset PYTHONOPTIMIZE" in ran.stderr.splitlines()[-1]


GIB = 1 << 30
STATISTICS = f"anon {GIB}\nfile {9 * GIB}\ninactive_file {2 * GIB}\nactive_file {GIB}\ntotal_inactive_file {3 * GIB}\n"


@pytest.mark.parametrize(
    ("line", "group", "files", "left"),
    [
        ("0::/", "", ("memory.max", "memory.current"), 3),
        ("0::/docker/abc", "", ("memory.max", "memory.current"), 3),  # in a container, whose group is the top
        ("0::/user.slice/me", "user.slice", ("memory.max", "memory.current"), 3),  # the limit of a group around
        ("4:cpu,memory:/me", "memory/me", ("memory.limit_in_bytes", "memory.usage_in_bytes"), 3),
        ("5:cpu:/me", "me", ("memory.max", "memory.current"), None),
    ],
)
def test_what_files_are_cached_in_counts_as_available(tmp_path, line, group, files, left):
    (where := tmp_path / "groups" / group).mkdir(parents=True)
    (tmp_path / "own").write_text(f"{line}\n")
    for name, value in zip(files, (4 * GIB, 4 * GIB), strict=True):
        (where / name).write_text(f"{value}\n")
    (where / "memory.stat").write_text(STATISTICS)
    available = doctor._available_memory(tmp_path / "groups", tmp_path / "own")
    nowhere = doctor._available_memory(tmp_path / "none", tmp_path / "none")
    assert available == min(left * GIB, nowhere) if left else abs(available - nowhere) < GIB


def test_a_group_without_a_limit_limits_nothing(tmp_path):
    (tmp_path / "own").write_text("0::/\n")
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text(f"{GIB}\n")
    (tmp_path / "memory.stat").write_text(STATISTICS)
    assert doctor._available_memory(tmp_path, tmp_path / "own") > 0
