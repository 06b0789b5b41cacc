"""A name, a topic or a setting that cannot be used is refused when a sink is made, for every kind of sink."""

from __future__ import annotations

import subprocess
import sys

import pytest
from sqlalchemy import MetaData

from exactly_once_kafka.__main__ import main
from exactly_once_kafka.kafka_rows import check_case
from exactly_once_kafka.marker_topic import topic_for
from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from labs.pipeline.sinks.database_sink import IP_COUNT, DatabaseSink
from labs.pipeline.sinks.file_sink import FileSink

NOBODY = "127.0.0.1:1"


def by_driver(name, **options):
    return ExactlyOnceKafkaSink(name, **{"topic": "t", "bootstrap_servers": NOBODY, "writers": "driver"} | options)


def by_executors(name, **options):
    return ExactlyOnceKafkaSink(name, **{"topic": "t", "bootstrap_servers": NOBODY} | options)


def database(name, **options):
    return DatabaseSink(name, **{"url": "sqlite:///nowhere.db"} | options)


KAFKA = [by_driver, by_executors]
UNUSABLE = ["", None, "\0", " ", 7, b"name", "a\0b", "a\nb", "\ud800", "x" * 250, "\N{SNOWMAN}" * 28, ".", ".."]


@pytest.mark.parametrize("make", [*KAFKA, database])
@pytest.mark.parametrize("name", UNUSABLE, ids=ascii)
def test_name_that_cannot_be_used_is_refused(make, name):
    options = {} if make is database else {"marker_topic": "markers"}
    with pytest.raises(ValueError, match=r"the sink's name is .* expected"):
        make(name, **options)


@pytest.mark.parametrize("make", KAFKA)
@pytest.mark.parametrize("name", ["a/b", "mañana", "a b", "x" * 243, "a:b", "..."])
def test_name_that_is_no_topic_needs_a_marker_topic(make, name):
    if name != "...":
        with pytest.raises(ValueError, match=r"not a name of a Kafka topic.*give the sink a marker_topic"):
            make(name)
    assert make(name, marker_topic="markers").name == name


@pytest.mark.parametrize("directory", ["", None, " ", "a\0b", 7, b"d", "x" * 256, "a/" + "ä" * 128])
def test_directory_that_cannot_be_used_is_refused(tmp_path, monkeypatch, directory):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"the directory .*expected"):
        FileSink(directory)
    assert not list(tmp_path.iterdir())


def test_a_long_path_is_no_long_name(tmp_path):
    assert FileSink(tmp_path.joinpath(*["x" * 200] * 3)).name


@pytest.mark.parametrize("make", KAFKA)
@pytest.mark.parametrize("topic", ["", "a\0b", "a b", ".", "..", "x" * 250, 7, b"t"], ids=ascii)
@pytest.mark.parametrize("which", ["topic", "marker_topic"])
def test_topic_that_no_kafka_has_is_refused(make, which, topic):
    with pytest.raises(ValueError, match=f"{which} is .*not a name of a Kafka topic"):
        make("name", **{which: topic})


@pytest.mark.parametrize("column", ["Value", "KEY", "Headers", "Partition", "tOpic"])
def test_column_of_kafkas_in_other_letters_is_refused_and_not_left_out(column):
    with pytest.raises(ValueError, match=f"'{column}' would not reach Kafka, where it is '{column.lower()}': rename"):
        check_case(("value", column, "offset"))
    check_case(("value", column.lower(), "timestamp"))


WITHOUT_ASSERTS = """
import sys
from exactly_once_kafka import ExactlyOnceKafkaSink
from exactly_once_kafka.executors.report import MissingDependency, check_environment
try:
    ExactlyOnceKafkaSink("name", "t", bootstrap_servers="127.0.0.1:1")
except RuntimeError as refusal:
    print(refusal)
try:
    check_environment({})
except MissingDependency as lacking:
    print(lacking)
"""


@pytest.mark.bench
def test_python_without_asserts_is_refused_at_once():
    command = ["-m", "exactly_once_kafka", "show", "name", "--bootstrap-servers", NOBODY]
    made = subprocess.run([sys.executable, "-O", "-c", WITHOUT_ASSERTS], capture_output=True, text=True)
    shown = subprocess.run([sys.executable, "-OO", *command], capture_output=True, text=True)
    lines = [*made.stdout.splitlines(), *shown.stderr.splitlines()]
    assert len(lines) == 3, made.stderr
    assert all("skips every `assert`" in line and "PYTHONOPTIMIZE" in line for line in lines)
    assert shown.returncode == 1


@pytest.mark.parametrize("make", KAFKA)
@pytest.mark.parametrize("servers", ["", None, " ", "\0", ["127.0.0.1:1"]])
def test_bootstrap_servers_that_are_none_are_refused(make, servers):
    with pytest.raises(ValueError, match=r"bootstrap_servers is .*expected text"):
        make("name", bootstrap_servers=servers)


@pytest.mark.parametrize("make", KAFKA)
@pytest.mark.parametrize("value", ["secret\0", "\ud800"], ids=ascii)
def test_option_of_which_the_client_would_see_a_part_is_refused(make, value):
    with pytest.raises(ValueError, match=r"sasl\.password") as refusal:
        make("name", sasl_password=value)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize("name", ["", "a\0b", "."])
def test_command_refuses_such_a_name_too(capsys, name):
    assert main(["show", name, "--bootstrap-servers", NOBODY, "--marker-topic", "markers"]) == 1
    assert "the sink's name is" in capsys.readouterr().err


def test_topic_for_the_marker_of_a_usual_name():
    assert topic_for("orders-eu", None) == "orders-eu-marker"


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite:///file::memory:?cache=shared&uri=true"])
def test_database_that_ends_with_each_connection_is_refused(url):
    with pytest.raises(ValueError, match="in memory"):
        DatabaseSink("name", url)


def test_table_without_the_sinks_own_columns_is_refused():
    table = IP_COUNT.to_metadata(MetaData())
    table._columns.remove(table.c.attempt)
    with pytest.raises(ValueError, match="'ip_count' has no column 'attempt'"):
        DatabaseSink("name", "sqlite:///nowhere.db", table)
