"""A new broker's directory from what was kept of an earlier one: the same features, other ids, never half a file."""

from __future__ import annotations

import pytest

from labs.equipment import node
from labs.equipment.broker import Broker
from labs.equipment.node import FEATURES, IDS, format_from_kept, is_formatted, keep_format, new_id
from labs.pipeline.two_phase.end_transaction import BrokerConnection

NODE = {"process.roles": "broker,controller", "node.id": "3", "listeners": "CLIENT://127.0.0.1:9092"}


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setattr(node, "lab_cache", lambda: tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture
def made(tmp_path):
    """What the tool made."""
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / FEATURES).write_bytes(b"features")
    return tmp_path / "made"


def ids(data):
    return dict(line.split("=", 1) for line in (data / IDS).read_text().splitlines())


def features(broker):
    with BrokerConnection(broker.bootstrap_servers) as connection:
        return connection.features()


def test_nothing_is_made_of_nothing(tmp_path):
    assert not format_from_kept(NODE, new_id(), tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_the_next_has_the_same_features_and_ids_of_its_own(made, tmp_path):
    keep_format(NODE, made)
    for name in ("one", "two"):
        assert format_from_kept({**NODE, "listeners": "elsewhere"}, "the-cluster", tmp_path / name)
        assert is_formatted(tmp_path / name)
        assert (tmp_path / name / FEATURES).read_bytes() == b"features"
    one, two = ids(tmp_path / "one"), ids(tmp_path / "two")
    assert one.pop("directory.id") != two.pop("directory.id")
    assert one == two == {"version": "1", "cluster.id": "the-cluster", "node.id": "3"}


def test_unstable_features_are_another_format(made, tmp_path):
    keep_format(NODE, made)
    assert not format_from_kept({**NODE, "unstable.feature.versions.enable": "true"}, new_id(), tmp_path / "data")


def test_what_is_damaged_is_not_used_and_is_replaced(made, tmp_path, cache):
    keep_format(NODE, made)
    [kept] = [file for file in cache.rglob("*") if file.is_file()]
    kept.write_bytes(kept.read_bytes()[:3])
    assert not format_from_kept(NODE, new_id(), tmp_path / "data")
    keep_format(NODE, made)
    assert format_from_kept(NODE, new_id(), tmp_path / "data")


def test_a_cache_that_cannot_be_written_is_none(made, tmp_path, cache):
    cache.write_text("in the way")
    keep_format(NODE, made)
    assert not format_from_kept(NODE, new_id(), tmp_path / "data")


@pytest.mark.long
def test_a_kafka_of_the_tools_making_and_one_of_a_kept_format_have_the_same_features(monkeypatch):
    with Broker() as first:
        expected = features(first)
    monkeypatch.setattr(node, "keep_format", lambda *_: pytest.fail("the tool was asked again"))
    with Broker() as second:
        assert features(second) == expected
    assert expected["transaction.version"] == 2
