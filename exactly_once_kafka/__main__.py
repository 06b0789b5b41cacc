"""Show the marker of an exactly-once sink, or set it. A marker that is set wrongly loses or duplicates rows."""

from __future__ import annotations

import argparse
import functools
import json
import sys
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException

from exactly_once_kafka.deadline import Deadline
from exactly_once_kafka.errors import NO_ANSWER_YET, OutcomeUnknown, explain
from exactly_once_kafka.kafka_client.open_transaction_repair import ensure_transaction_ended
from exactly_once_kafka.marker_store import MarkerStore, Unreadable
from exactly_once_kafka.marker_topic import MarkerTopicUnsafe, topic_for
from exactly_once_kafka.plan import goes_back, plan_of, shown
from exactly_once_kafka.producer import PendingProducer
from exactly_once_kafka.producer_options import producer_settings, require_asserts, with_dots
from exactly_once_kafka.protocol import ADOPTED, Marker

EXAMPLES = """examples:
  python -m exactly_once_kafka show orders-eu --bootstrap-servers 127.0.0.1:9092
  python -m exactly_once_kafka adopt orders-eu --batch 41 --checkpoint ./checkpoint \\
      --bootstrap-servers 127.0.0.1:9092

This `adopt` sets the marker to batch 41 of the query that has this checkpoint: the last batch whose results the topic
holds. The query writes batch 42 next. If the topic holds more than batch 41, batch 42 will be there twice; if it holds
less, the missing rows stay missing: the command does not check the topic. `adopt` refuses to go back to before the
present marker, because the rows after that would come again. If you have deleted those rows, use --force.
Stop the query first: `adopt` fences a driver that still runs.

When Spark repartitions the state of a query (streamingCheckpointManager().repartition), it adds a batch without rows,
and the sink continues by itself. If the sink refuses, and the batch before the added one is the last whose results the
topic holds, adopt the added one. If `adopt` refuses too, the last batch was published, but Spark had not written it to
its commit log: restore the checkpoint from before, run the query until that log has the batch, then repartition again.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("show", "adopt"))
    parser.add_argument("name", help="the sink's name")
    parser.add_argument("--bootstrap-servers", required=True, help="address of Kafka: host:port")
    parser.add_argument("--marker-topic", help="the sink's marker_topic, if it was given one (default: NAME-marker)")
    parser.add_argument("--topic", help="adopt: the sink's topic, searched for open transactions (default: all topics)")
    parser.add_argument("--batch", type=int, help="adopt: the last batch that the topic holds")
    parser.add_argument("--checkpoint", help="adopt: the checkpoint directory of the query that goes on")
    parser.add_argument("--query-id", help="adopt: the query's id, where the checkpoint is not on this machine")
    parser.add_argument("--force", action="store_true", help="adopt: even if it goes back to before the present marker")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="connection setting, such as sasl.username=me",
    )


def main(argv: list[str] | None = None) -> int:
    """Carry out one command and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m exactly_once_kafka",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    try:
        arguments = parser.parse_args(argv)
        require_asserts()
        return run(arguments)
    except (OSError, ValueError, RuntimeError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1


def run(arguments: argparse.Namespace) -> int:
    if not all("=" in option for option in arguments.option):
        raise ValueError("--option wants KEY=VALUE, such as sasl.username=me")
    options = with_dots(dict(option.split("=", 1) for option in arguments.option))
    topic = topic_for(arguments.name, arguments.marker_topic)
    servers, deadline = arguments.bootstrap_servers, Deadline(10)
    store = MarkerStore(arguments.name, topic, servers, options)
    try:
        adopts = arguments.action == "adopt"
        marker = Marker(arguments.batch, query_id(arguments), plan(arguments)) if adopts else None
        found, unreadable = read(store, deadline, undecided=True)
        if unreadable and not adopts:
            raise unreadable
        if unreadable:
            print(unreadable)
        print(f"sink {arguments.name!r}, marker in topic {topic!r}: {describe(found)}")
        if marker is not None:
            check(marker, found, arguments.force)
            if store.topic.id(deadline) is None:  # who may not create topics can adopt in one that exists
                store.topic.create(deadline)
            settings = producer_settings(arguments.name, servers, options)
            first = functools.partial(
                ensure_transaction_ended, arguments.name, settings, topic, arguments.topic, abort=True
            )
            producer = PendingProducer(settings, first=first).take(deadline)
            # The query's driver may have committed a batch since. From here on, it is fenced.
            found, _ = read(store, deadline.restarted())
            check(marker, found, arguments.force)
            store.overwrite(marker, producer, deadline)
            print(f"now: {describe(marker)}")
    except KafkaException as error:
        raise ConnectionError(_why_unreachable(error.args[0], arguments)) from error
    except TimeoutError as error:
        raise ConnectionError(f"no Kafka answers at {servers}, or a connection --option is wrong: {error}") from error
    except OutcomeUnknown as error:
        raise ValueError(
            f"Kafka left rows of this sink open in {error}, and does not know whether they were committed or aborted: "
            "decide that, and end their transaction first, with kafka-transactions.sh"
        ) from error
    except MarkerTopicUnsafe as unsafe:
        raise ValueError(str(unsafe)) from unsafe
    return 0


def read(store: MarkerStore, deadline: Deadline, undecided: bool = False) -> tuple[Marker | None, Unreadable | None]:
    """Return the last committed marker, or None; and the error if the newest record is not a marker, or None."""
    try:
        return store.read(deadline, undecided) if store.topic.id(deadline) else None, None
    except Unreadable as unreadable:
        return unreadable.before, unreadable


def check(marker: Marker, found: Marker | None, force: bool) -> None:
    """Raise ValueError if a query that continues after `marker` would publish rows of `found` or before again."""
    if found is None or force:
        return
    same_query = marker.query_id == found.query_id
    if goes_back(marker.plan, found.plan, same_query) or (same_query and marker.batch_id < found.batch_id):
        raise ValueError(
            f"after batch {marker.batch_id}, the query would publish again what the topic holds up to batch "
            f"{found.batch_id}; expected a batch that ends where that one ended, or later. If the topic does not "
            "hold those rows any more, add --force\n"
            f"  committed: {shown(found.plan, marker.plan)}\n"
            f"  to adopt:  {shown(marker.plan, found.plan)}"
        )


def _why_unreachable(error: KafkaError, arguments: argparse.Namespace) -> str:
    if error.code() in NO_ANSWER_YET:
        return f"no Kafka answers at {arguments.bootstrap_servers}, or a connection --option is wrong: {error.str()}"
    return f"the marker cannot be reached at {arguments.bootstrap_servers}: {explain(error, arguments.name)}"


def describe(marker: Marker | None) -> str:
    if marker is None:
        return "no marker: nothing was committed under this name, or the topic was deleted"
    planned = "" if marker.plan == ADOPTED else f", as it was planned: {shown(marker.plan, None)}"
    return f"batch {marker.batch_id} of query {marker.query_id} was committed last{planned}"


def plan(arguments: argparse.Namespace) -> str:
    """Return the plan of the batch from the checkpoint, or ADOPTED if there is none."""
    entry = Path(arguments.checkpoint or "", "offsets", str(arguments.batch))
    return plan_of(entry.read_text()) if arguments.checkpoint and entry.exists() else ADOPTED


def query_id(arguments: argparse.Namespace) -> str:
    """Return the id of the query to adopt. Raises ValueError."""
    if arguments.batch is None or arguments.batch < 0:
        raise ValueError("adopt needs --batch N, the last batch that the topic holds (0 or more)")
    if arguments.query_id:
        return str(arguments.query_id)
    if arguments.checkpoint:
        return str(json.loads((Path(arguments.checkpoint) / "metadata").read_text())["id"])
    raise ValueError("adopt needs the query: --checkpoint DIR or --query-id ID")


if __name__ == "__main__":
    sys.exit(main())
