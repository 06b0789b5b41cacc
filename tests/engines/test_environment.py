"""Environments: whole or not there, refused in one line, and the lab untouched."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from labs.engines import environment
from labs.engines.environment import FLINK, QUIX, STREAMS, InstallFailed, NotInstalled, environment_of
from labs.equipment.ports import free_ports
from labs.equipment.waiting import alone_in, eventually

CLOSED = f"http://127.0.0.1:{free_ports(1)[0]}/simple"


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """An index that refuses connections, nothing in uv's cache, and a lab's cache with a space in its path."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "my cache"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    for variable in ("UV_DEFAULT_INDEX", "UV_INDEX_URL"):
        monkeypatch.setenv(variable, CLOSED)
    return tmp_path / "my cache" / "exactly-once-lab" / "engines"


@pytest.mark.long
def test_install_without_a_network_is_one_line_and_leaves_nothing(offline):
    command = [sys.executable, "-m", "labs", "engines", "install", "quix"]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert ran.returncode == 1
    *progress, refusal = ran.stderr.splitlines()
    assert progress[0] == "Installing quix: 20 MB to fetch, 80 MB on disk"
    assert refusal.startswith("python -m labs engines: quix was not installed, and nothing was changed: ")
    assert "Traceback" not in ran.stderr
    assert list(offline.iterdir()) == []


@pytest.mark.long
def test_flink_without_a_network_is_one_line_and_leaves_nothing(offline, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))  # where jars are kept
    for variable in ("https_proxy", "http_proxy", "HTTPS_PROXY", "HTTP_PROXY"):
        monkeypatch.setenv(variable, CLOSED)
    command = [sys.executable, "-m", "labs", "engines", "install", "flink"]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert ran.returncode == 1
    _, refusal = ran.stderr.splitlines()
    assert refusal.startswith("python -m labs engines: flink was not installed, and nothing was changed: the jars of ")
    assert not offline.exists()


@pytest.mark.long
def test_ctrl_c_while_installing_leaves_nothing(offline, monkeypatch, tmp_path):
    said = tmp_path / "said"
    with socket.create_server(("127.0.0.1", 0)) as silent, said.open("w") as stderr:  # an index that never answers
        for variable in ("UV_DEFAULT_INDEX", "UV_INDEX_URL"):
            monkeypatch.setenv(variable, f"http://127.0.0.1:{silent.getsockname()[1]}/simple")
        command = [sys.executable, "-m", "labs", "engines", "install", "quix"]
        started = subprocess.Popen(command, stderr=stderr, cwd=Path(__file__).parents[2], start_new_session=True)
        silent.settimeout(60)
        asked, _ = silent.accept()
        os.killpg(started.pid, signal.SIGINT)
        assert started.wait(30) == 130
        asked.close()
    assert said.read_text().endswith("\nstopped\n")
    assert "Traceback" not in said.read_text()
    eventually(lambda: list(offline.iterdir()) == [])


def test_what_is_not_installed_says_how_it_is(offline):
    with pytest.raises(NotInstalled, match="run: python -m labs engines install flink"):
        _ = FLINK.python
    with pytest.raises(ValueError, match="'spark' has no environment of its own"):
        environment_of("spark")


def test_what_an_interruption_left_does_not_count_and_is_removed(offline):
    left = QUIX.folder.parent / "quix-x1.part"
    left.joinpath("made", "bin").mkdir(parents=True)
    assert not QUIX.installed
    with pytest.raises(InstallFailed):
        QUIX.install()
    assert not left.exists()


def test_a_second_install_at_once_waits_for_the_first_and_finds_what_it_made(offline):
    second = threading.Thread(target=QUIX.install)  # of its own it cannot: there is no network
    with alone_in(offline):
        mine = offline / "quix-x1.part"
        mine.mkdir()
        second.start()
        second.join(1)
        assert second.is_alive()
        mine.rename(QUIX.folder)
    second.join(30)
    assert not second.is_alive()
    assert list(offline.iterdir()) == [QUIX.folder]


def test_a_python_that_is_not_there_is_not_downloaded(offline, monkeypatch):
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(offline / "pythons"))
    too_old = dataclasses.replace(FLINK, newest_python=(3, 4))
    with pytest.raises(InstallFailed, match=r"flink was not installed, and nothing was changed: .*[Pp]ython"):
        too_old.install()
    assert not (offline / "pythons").exists()


def test_without_a_java_compiler_it_is_said_in_one_line(offline, monkeypatch):
    monkeypatch.setattr(environment.shutil, "which", lambda name, path=None: None)
    with pytest.raises(InstallFailed, match=r"streams was not installed, and nothing was changed: found no Java"):
        STREAMS.install()
    assert list(offline.iterdir()) == []


@pytest.mark.skipif(environment.find_compiler() is None, reason="a compiler is what is tried")
def test_a_program_that_does_not_compile_is_one_line_and_leaves_nothing(offline, tmp_path):
    source = tmp_path / "Wrong.java"
    source.write_text("class Wrong { int number = true; }")
    lines: list[str] = []
    with pytest.raises(InstallFailed, match=r"streams was not installed, .*: .*Wrong.java:1: error"):
        dataclasses.replace(STREAMS, source=source).install(lines.append)
    assert lines[:2] == ["fetching and checking its jars", "compiling"]
    assert len(lines) > 2
    assert list(offline.iterdir()) == []
