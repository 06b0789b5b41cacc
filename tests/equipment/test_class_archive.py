"""The archive of classes: made by setup, and one that a Java takes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from labs.equipment import class_archive, java
from labs.equipment.apart import Apart
from labs.equipment.class_archive import ARCHIVES, archive_directory, archive_options, make_archives
from labs.equipment.jars import broker_jars, local_files_jar
from labs.equipment.java import find_java
from labs.equipment.spark import spark_session


@pytest.fixture(scope="module")
def made():
    """The archives that setup has made: anew where it could not, or Spark had started before."""
    assert make_archives() == ""


@pytest.mark.long
def test_java_takes_the_brokers(made):
    options = [option for option in archive_options("broker") if option != "-Xshare:auto"]
    classes = os.pathsep.join(map(str, broker_jars()))
    command = [find_java().executable, *options, "-Xshare:on", "-XX:+UseSerialGC", "-cp", classes, "-version"]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which files a process has mapped")
def test_sparks_java_takes_its_archive_and_not_only_has_one(made):
    driver = Apart(start_spark)
    try:
        pid, command = driver.result
        mapped = {Path(each.path).name for each in psutil.Process(pid).memory_maps()}
    finally:
        driver.kill()
    java = command[: command.index("org.apache.spark.deploy.SparkSubmit")]
    assert "spark.jsa" in mapped, why_not([option for option in java if not option.startswith("-Xlog")])


def start_spark():
    gateway = spark_session().sparkContext._gateway
    assert gateway is not None
    process = psutil.Process(gateway.proc.pid)
    return process.pid, process.cmdline()


def why_not(java: list[str]) -> str:
    return subprocess.run([*java, "-Xlog:cds,class+path=info", "-version"], capture_output=True, text=True).stdout


def test_javas_that_come_to_the_same_place_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(java, "lab_cache", lambda: tmp_path / "cache")
    places = []
    for version in ("21.0.8", "25.0.2"):
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / "java").write_text('#!/bin/sh\n[ "$1" = -version ]\n')  # trimmed: it refuses Spark's option
        (tmp_path / "bin" / "java").chmod(0o755)
        (tmp_path / "release").write_text(f'JAVA_VERSION="{version}"\n')
        home = java._spark_ready_home(tmp_path)
        assert home != tmp_path
        places.append((home / "release").read_text())
    assert len(set(places)) == 2


def test_without_an_archive_java_starts_as_always(tmp_path, monkeypatch):
    monkeypatch.setattr(class_archive, "archive_directory", lambda: tmp_path)
    assert [archive_options(name) for name in ARCHIVES] == [(), ()]


def test_a_jar_that_became_another_file_has_another_archive(tmp_path, monkeypatch):
    copy = Path(shutil.copy2(local_files_jar(), tmp_path))
    monkeypatch.setattr(class_archive, "kept_jars", lambda: [copy])
    ours = archive_directory()
    assert archive_directory() == ours
    os.utime(copy, (0, 0))
    assert archive_directory() != ours


def test_training_that_fails_leaves_no_archive(tmp_path, monkeypatch):
    monkeypatch.setattr(class_archive, "archive_directory", lambda: tmp_path / "classes")
    monkeypatch.setattr(class_archive.sys, "executable", "/bin/false")
    assert make_archives() == "status 1: it said nothing"
    assert {each.name for each in (tmp_path / "classes").iterdir()} <= {class_archive.MADE_FOR, class_archive.BASE}


def test_archives_of_what_is_gone_go_when_new_ones_are_made(tmp_path, monkeypatch):
    lives, gone, older = tmp_path / "lives", tmp_path / "gone", tmp_path / "older"
    for directory, files in (
        (lives, [sys.executable]),
        (gone, ["/no/such/java"]),
        (older, class_archive._installation()),
    ):
        directory.mkdir()
        (directory / class_archive.MADE_FOR).write_text("\n".join(files))
    monkeypatch.setattr(class_archive, "archive_directory", lambda: tmp_path / "ours")
    monkeypatch.setattr(class_archive, "_run", lambda *_: "status 1")
    make_archives()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["lives", "ours"]
    assert (tmp_path / "ours" / class_archive.MADE_FOR).read_text().splitlines() == class_archive._installation()
