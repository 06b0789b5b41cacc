"""`python -m labs sink`: what an operator is told about a marker, and what he can set."""

from __future__ import annotations

import pytest

from labs.commands import main
from labs.pipeline.marker import Marker, MarkerStore


@pytest.fixture
def sink(broker, topic, capsys):
    """Run `sink ACTION orders` on a topic of its own; return the exit code, the output and the errors."""
    name = topic()

    def sink(action, *more, topic=name, servers=broker.bootstrap_servers):
        code = main(["sink", action, "orders", "--topic", topic, "--bootstrap-servers", servers, *more])
        return code, *capsys.readouterr()

    sink.topic = name
    return sink


def test_marker_is_set_and_shown(sink, broker):
    code, shown, _ = sink("show")
    assert (code, "no marker" in shown) == (0, True)
    code, shown, _ = sink("adopt", "--batch", "41", "--query-id", "a-query")
    assert (code, shown.splitlines()[-1]) == (0, "now: batch 41 of query a-query was committed last")
    assert "batch 41 of query a-query" in sink("show")[1]
    assert MarkerStore("orders", sink.topic, broker.bootstrap_servers, {}).read() == Marker(41, "a-query")


def test_query_is_taken_from_the_checkpoint(sink, tmp_path):
    (tmp_path / "metadata").write_text('{"id":"from-the-checkpoint"}')
    (tmp_path / "offsets").mkdir()
    assert "of query from-the-checkpoint" in sink("adopt", "--batch", "3", "--checkpoint", str(tmp_path))[1]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ((), "--batch N"),
        (("--batch", "-1"), "--batch N"),
        (("--batch", "1"), "--checkpoint DIR or --query-id ID"),
        (("--batch", "1", "--query-id", "q", "--option", "foo"), "KEY=VALUE"),
    ],
)
def test_what_adopt_lacks_is_said(sink, more, message):
    code, _, error = sink("adopt", *more)
    assert (code, error.count("\n")) == (1, 1)
    assert message in error


def test_topic_that_does_not_exist_gets_no_marker(sink):
    code, _, error = sink("adopt", "--batch", "1", "--query-id", "q", topic="nowhere")
    assert (code, "there is no topic 'nowhere'" in error) == (1, True), error


def test_kafka_that_does_not_answer_is_said(sink):
    code, _, error = sink("show", servers="127.0.0.1:1")
    assert (code, "no Kafka answers at 127.0.0.1:1" in error) == (1, True), error
