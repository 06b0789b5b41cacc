"""Look at the marker of an exactly-once sink, or set it: for an operator who knows what he does."""

from __future__ import annotations

import argparse

from confluent_kafka import KafkaException

from labs.pipeline.marker import NO_ANSWER_YET, Marker, MarkerStore
from labs.pipeline.sink_errors import NO_SUCH_TOPIC

EXAMPLES = """examples:
  python -m labs sink show orders-eu --topic orders --bootstrap-servers 127.0.0.1:9092
  python -m labs sink adopt orders-eu --batch 41 --checkpoint ./checkpoint --topic orders \\
      --bootstrap-servers 127.0.0.1:9092

`adopt` says: of the query that has this checkpoint, batch 41 is the last one whose results the topic holds.
Batch 42 will be written next; nothing is checked. If the topic holds more than that, 42 will be there twice;
if it holds less, what is missing stays missing.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("show", "adopt"))
    parser.add_argument("name", help="the sink's name")
    parser.add_argument("--bootstrap-servers", required=True, help="address of Kafka: host:port")
    parser.add_argument("--topic", required=True, help="the sink's topic, or its marker_topic if it has one")
    parser.add_argument("--batch", type=int, help="adopt: the last batch that the topic holds")
    parser.add_argument("--checkpoint", help="adopt: the checkpoint directory of the query that goes on")
    parser.add_argument("--query-id", help="adopt: the query's id, where the checkpoint is not on this machine")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="connection setting, such as sasl.username=me",
    )


def run(arguments: argparse.Namespace) -> int:
    if not all("=" in option for option in arguments.option):
        raise ValueError("--option wants KEY=VALUE, such as sasl.username=me")
    options = dict(option.split("=", 1) for option in arguments.option)
    store = MarkerStore(arguments.name, arguments.topic, arguments.bootstrap_servers, options)
    try:
        found = store.read(stable=False, timeout=10)
        print(f"sink {arguments.name!r}, topic {arguments.topic!r}: {describe(found)}")
        if arguments.action == "adopt":
            marker = Marker(arguments.batch, query_id(arguments))
            store.overwrite(marker)
            print(f"now: {describe(marker)}")
    except KafkaException as error:
        raise ConnectionError(why(error.args[0], arguments)) from error
    return 0


def why(error, arguments: argparse.Namespace) -> str:
    if error.code() in NO_SUCH_TOPIC:
        return f"there is no topic {arguments.topic!r} at {arguments.bootstrap_servers}; no marker was set"
    if error.code() in NO_ANSWER_YET:
        return f"no Kafka answers at {arguments.bootstrap_servers}, or not without the right --option: {error.str()}"
    return f"the marker cannot be reached at {arguments.bootstrap_servers}: {error.str()}"


def describe(marker) -> str:
    if marker is None:
        return "no marker: nothing was committed under this name to this topic, or it has expired"
    return f"batch {marker.batch_id} of query {marker.query_id} was committed last"


def query_id(arguments: argparse.Namespace) -> str:
    """Return the id of the query to adopt. Raises ValueError."""
    if arguments.batch is None or arguments.batch < 0:
        raise ValueError("adopt needs --batch N, the last batch that the topic holds (0 or more)")
    if arguments.query_id:
        return arguments.query_id
    if arguments.checkpoint:
        from labs.evidence.checkpoint import read_checkpoint

        return read_checkpoint(arguments.checkpoint).query_id
    raise ValueError("adopt needs the query: --checkpoint DIR or --query-id ID")
