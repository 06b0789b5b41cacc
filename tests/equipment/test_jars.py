import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

from labs.equipment import jars
from labs.equipment.jars import (
    KAFKA,
    SPARK,
    JarRefused,
    JarsNotFetched,
    broker_jars,
    connector_jars,
    local_files_jar,
    read_sums,
)

OFFLINE = """
import socket

def no_network(*_, **__):
    raise AssertionError("the network was used")

socket.getaddrinfo = socket.create_connection = socket.socket.connect = socket.socket.connect_ex = no_network
from labs.equipment.jars import broker_jars, connector_jars, local_files_jar
print(len(broker_jars()), len(connector_jars()), local_files_jar().suffix)
"""


@pytest.fixture
def fetched(monkeypatch, tmp_path):
    """The connector's jars in a directory where they may be spoiled; nothing is fetched from elsewhere."""
    for jar in jars._spark_jars():
        (tmp_path / jar.name).symlink_to(jar.resolve())
    monkeypatch.setattr(jars, "_kept", lambda endpoint, names: [])
    monkeypatch.setattr(jars, "_fetch", lambda endpoint, anew=False: sorted(tmp_path.glob("*.jar")))
    return tmp_path


def verified():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jars, "_spark_jars", jars._spark_jars.__wrapped__)  # anew: without the cache
        return connector_jars()


def test_the_connector_has_the_version_of_the_installed_pyspark():
    names = [jar.name for jar in connector_jars()]
    assert f"spark-sql-kafka-0-10_2.13-{pyspark.__version__}.jar" in names


def test_no_jar_of_the_connector_comes_twice():
    shipped = {jar.name.rsplit("-", 1)[0] for jar in Path(pyspark.__file__).with_name("jars").glob("*.jar")}
    own = [jar.name.rsplit("-", 1)[0] for jar in connector_jars()]
    assert len(own) == len(set(own))
    assert not shipped & set(own)


def test_every_jar_has_a_recorded_sum():
    assert {jar.name for jar in broker_jars()} == read_sums(KAFKA).keys()
    assert {jar.name for jar in (*connector_jars(), local_files_jar())} <= read_sums(SPARK).keys()


def test_good_jars_are_accepted(fetched):
    assert {jar.name for jar in verified()} == {jar.name for jar in connector_jars()}


def test_a_corrupted_jar_is_refused_by_name(fetched):
    victim = next(fetched.glob("kafka-clients-*.jar"))
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.unlink()
    victim.write_bytes(content)
    with pytest.raises(JarRefused, match=f"{victim.name} is not the jar.*\n.*expected sha256.*\n.*found") as refusal:
        verified()
    assert f"Delete {victim}" in str(refusal.value)


def test_a_jar_swapped_for_another_is_refused_by_name(fetched):
    victim, other = next(fetched.glob("spark-sql-*.jar")), next(fetched.glob("spark-token-*.jar"))
    victim.unlink()
    shutil.copy(other, victim)
    with pytest.raises(JarRefused, match=f"{victim.name} is not the jar"):
        verified()


def test_an_unknown_jar_is_refused_by_name(fetched):
    shutil.copy(next(fetched.glob("spark-*.jar")), fetched / "stowaway-1.0.jar")
    with pytest.raises(JarRefused, match=r"stowaway-1\.0\.jar has no sum.*\n.*make setup"):
        verified()


def test_a_missing_jar_is_refused_by_name(fetched):
    victim = next(fetched.glob("commons-pool2-*.jar"))
    victim.unlink()
    with pytest.raises(JarRefused, match=f"{victim.name} did not come.*\n.*python -m labs setup"):
        verified()


def test_jars_of_a_pyspark_without_sums_are_refused(fetched, monkeypatch):
    monkeypatch.setattr(jars, "SPARK", SPARK.replace(pyspark.__version__, "3.5.0"))
    with pytest.raises(JarRefused, match=r"has no sums for .*3\.5\.0.*is the pyspark in .* another"):
        verified()


def test_what_an_interrupted_fetch_left_is_completed(monkeypatch, tmp_path):
    environment = local_files_jar().parents[1]
    root = next(parent for parent in environment.parents if parent.name == "envs").parent
    copy = tmp_path / environment.relative_to(root)
    shutil.copytree(environment, copy)
    next(copy.rglob("commons-pool2-*.jar")).unlink()
    monkeypatch.setenv("JGO_CACHE_DIR", str(tmp_path))
    assert {jar.name for jar in verified()} == {jar.name for jar in connector_jars()}
    assert all(jar.is_relative_to(tmp_path) for jar in verified())


def run_offline(**environment: str) -> subprocess.CompletedProcess:
    proxies = dict.fromkeys(["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"], "http://127.0.0.1:9")
    environment = {**os.environ, **proxies, **environment}
    return subprocess.run([sys.executable, "-c", OFFLINE], env=environment, capture_output=True, text=True)


@pytest.mark.bench
def test_cached_jars_need_no_network_and_are_not_resolved_again(tmp_path):
    ran = run_offline(M2_REPO=str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == f"{len(broker_jars())} {len(connector_jars())} .jar\n"


@pytest.mark.long
def test_without_cache_and_network_the_message_says_what_to_do(tmp_path):
    ran = run_offline(JGO_CACHE_DIR=str(tmp_path / "jgo"), M2_REPO=str(tmp_path / "m2"))
    assert "JarsNotFetched: the jars of org.apache.kafka:kafka_2.13" in ran.stderr
    assert "connect to the network and run: python -m labs setup" in ran.stderr


def test_a_cache_that_cannot_be_made_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("JGO_CACHE_DIR", str(tmp_path / "file" / "jgo"))
    with pytest.raises(JarsNotFetched, match=r"cannot be kept .*file/jgo"):
        verified()


@pytest.mark.long
def test_of_processes_that_need_the_same_jars_at_once_one_fetches_and_all_get_them(tmp_path):
    environment = {**os.environ, "JGO_CACHE_DIR": str(tmp_path / "jgo"), "M2_REPO": str(tmp_path / "m2")}
    command = [sys.executable, "-c", "from labs.equipment.jars import flink_connector_jars as jars; print(*jars())"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    together = [subprocess.Popen(command, env=environment, **pipes) for _ in range(4)]
    said = [each.communicate(timeout=300) for each in together]
    assert [each.returncode for each in together] == [0] * 4, [errors for _, errors in said]
    [jar] = {Path(jars.strip()) for jars, _ in said}
    linked = jar.lstat().st_ctime_ns
    subprocess.run(command, env=environment, check=True, capture_output=True)
    assert jar.lstat().st_ctime_ns == linked, "a jar that somebody may be running on was linked anew"
