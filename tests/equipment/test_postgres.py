"""The PostgreSQL of the bench: real, private, and gone when its parent is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from sqlalchemy import NullPool, create_engine, text

from labs.equipment import postgres as postgres_module
from labs.equipment.postgres import Postgres, PostgresError
from labs.equipment.waiting import eventually
from tests.processes import next_line

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]


@pytest.fixture
def postgres():
    with Postgres() as started:
        yield started


def execute(postgres, statement):
    with create_engine(postgres.url, poolclass=NullPool).begin() as connection:
        result = connection.execute(text(statement))
        return result.scalars().all() if result.returns_rows else None


def test_what_was_committed_survives_a_kill_and_a_restart(postgres):
    execute(postgres, "create table kept (n int)")
    for number, end in enumerate([postgres.kill, postgres.stop]):
        execute(postgres, f"insert into kept values ({number})")
        end()
        assert postgres.pid is None
        postgres.start()
    assert execute(postgres, "select n from kept order by n") == [0, 1]


def test_it_listens_on_no_network(postgres):
    server = psutil.Process(postgres.pid)
    processes = [server, *server.children(recursive=True)]
    assert len(processes) > 1
    assert [process.net_connections(kind="inet") for process in processes] == [[]] * len(processes)


def test_close_leaves_nothing_behind():
    with Postgres() as postgres:
        pid, directory = postgres.pid, postgres.directory
        assert execute(postgres, "select 1") == [1]
        assert pid is not None
    assert not psutil.pid_exists(pid)
    assert not directory.exists()


def test_it_does_not_outlive_a_parent_that_is_killed():
    script = (
        "from labs.equipment.postgres import Postgres\n"
        "postgres = Postgres().start()\n"
        "print(postgres.pid, postgres.directory, flush=True)\n"
        "input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        pid, directory = next_line(parent.stdout).split()
        parent.send_signal(signal.SIGKILL)
    eventually(lambda: not psutil.pid_exists(int(pid)))
    eventually(lambda: not Path(directory).exists())


def test_programs_that_only_root_can_reach_are_copied_for_nobody(tmp_path, monkeypatch):
    private = postgres_module.copy_programs(postgres_module.installed_package(), tmp_path)
    tmp_path.chmod(0o700)
    monkeypatch.setattr("labs.equipment.postgres.installed_package", lambda: private)
    with Postgres() as postgres:
        assert execute(postgres, "select 1") == [1]


def test_socket_finds_a_shorter_place_where_the_temporary_directory_is_too_long(tmp_path, monkeypatch):
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with Postgres() as postgres:
        assert execute(postgres, "select 1") == [1]
    assert list(long.iterdir()) == []


def test_damaged_data_is_reported_with_what_the_server_said(postgres):
    postgres.stop()
    (postgres.directory / "data" / "global" / "pg_control").unlink()
    with pytest.raises(PostgresError, match=r"(?s)ended while starting.*could not find the database system"):
        postgres.start()


def test_missing_server_is_reported_with_the_cure(tmp_path, monkeypatch):
    monkeypatch.setattr(postgres_module, "WHEEL", "no_such_wheel")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(PostgresError, match="make setup"):
        Postgres()
    assert list(tmp_path.iterdir()) == []
