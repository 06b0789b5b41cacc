"""Look at the marker of an exactly-once sink, or set it: for an operator who knows what he does."""

from __future__ import annotations

import argparse
import functools
import json
import sys
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException

from exactly_once_kafka.batch import ADOPTED, REAL_TIME, Marker
from exactly_once_kafka.errors import Undecidable, explain
from exactly_once_kafka.executors.left_open import settle
from exactly_once_kafka.marker import MarkerStore, Unreadable
from exactly_once_kafka.marker_topic import NO_ANSWER_YET, Forgetful, topic_for
from exactly_once_kafka.options import producer_settings, require_asserts
from exactly_once_kafka.patience import Patience
from exactly_once_kafka.plan import goes_back, plan_of, shown
from exactly_once_kafka.producer import PendingProducer

EXAMPLES = """examples:
  python -m exactly_once_kafka show orders-eu --bootstrap-servers 127.0.0.1:9092
  python -m exactly_once_kafka adopt orders-eu --batch 41 --checkpoint ./checkpoint \\
      --bootstrap-servers 127.0.0.1:9092

`adopt` says: of the query that has this checkpoint, batch 41 is the last one whose results the topic holds.
Batch 42 will be written next. If the topic holds more than that, 42 will be there twice; if it holds less, what
is missing stays missing: nobody checks it. `adopt` refuses what goes back to before the marker that is there, for
the rows after that would come again; --force sets it all the same, where you have deleted them.
Stop the query first: a driver that still runs is fenced.

Where Spark has repartitioned the state of a query (streamingCheckpointManager().repartition), it has added a batch
without rows, and the sink goes on by itself. If it does not, and the batch before that one is the last whose
results the topic holds, adopt the one that was added. If `adopt` refuses, the last batch was published and Spark
had not noted it: restore the checkpoint as it was before, run the query until that batch is noted, then repartition.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("show", "adopt"))
    parser.add_argument("name", help="the sink's name")
    parser.add_argument("--bootstrap-servers", required=True, help="address of Kafka: host:port")
    parser.add_argument("--marker-topic", help="the sink's marker_topic, if it was given one (default: NAME-marker)")
    parser.add_argument("--topic", help="the sink's topic: where to look for a marker of a version before 1.0")
    parser.add_argument("--batch", type=int, help="adopt: the last batch that the topic holds")
    parser.add_argument("--checkpoint", help="adopt: the checkpoint directory of the query that goes on")
    parser.add_argument("--query-id", help="adopt: the query's id, where the checkpoint is not on this machine")
    parser.add_argument("--force", action="store_true", help="adopt: also what goes back to before the marker")
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
    options = dict(option.split("=", 1) for option in arguments.option)
    topic = topic_for(arguments.name, arguments.marker_topic)
    servers, patience = arguments.bootstrap_servers, Patience(10)
    store = MarkerStore(arguments.name, topic, servers, options, old_topic=arguments.topic)
    try:
        adopts = arguments.action == "adopt"
        marker = Marker(arguments.batch, query_id(arguments), plan(arguments)) if adopts else None
        found = read(store, patience, overwritten=adopts)
        print(f"sink {arguments.name!r}, marker in topic {topic!r}: {describe(found)}")
        if marker is not None:
            if found is not None and not arguments.force:
                check(marker, found)
            store.topic.create(patience)
            settings = producer_settings(arguments.name, servers, options)
            first = functools.partial(settle, arguments.name, settings, topic, arguments.topic, abort=True)
            producer = PendingProducer(settings, first=first).take(patience)
            store.overwrite(marker, producer, patience)
            print(f"now: {describe(marker)}")
    except KafkaException as error:
        raise ConnectionError(_why_unreachable(error.args[0], arguments)) from error
    except TimeoutError as error:
        raise ConnectionError(f"no Kafka answers at {servers}, or not without the right --option: {error}") from error
    except Undecidable as error:
        raise ValueError(
            f"Kafka left rows of this name open in {error}, and nobody knows how they were to end: decide that first, "
            "with kafka-transactions.sh"
        ) from error
    except Forgetful as unsafe:
        raise ValueError(str(unsafe)) from unsafe
    return 0


def read(store: MarkerStore, patience: Patience, overwritten: bool = False) -> Marker | None:
    """Return what was committed last, also by a version that kept it elsewhere.

    Where the newest record is no marker and is to be `overwritten`, say so and return the last one before it.
    """
    try:
        return store.read(patience, undecided=True) if store.topic.id(patience) else store.read_old(patience)
    except Unreadable as unreadable:
        if not overwritten:
            raise
        print(unreadable)
        return unreadable.before


def check(marker: Marker, found: Marker) -> None:
    """Raise ValueError if the query would publish again, after `marker`, what was published up to `found`."""
    same_query = marker.query_id == found.query_id
    if goes_back(marker.plan, found.plan, same_query) or (same_query and marker.batch_id < found.batch_id):
        raise ValueError(
            f"after batch {marker.batch_id}, the query would publish again what the topic holds up to batch "
            f"{found.batch_id}; expected a batch that ends where that one did, or behind it. If the topic does not "
            "hold those rows any more, add --force\n"
            f"  committed: {shown(found.plan, marker.plan)}\n"
            f"  to adopt:  {shown(marker.plan, found.plan)}"
        )


def _why_unreachable(error: KafkaError, arguments: argparse.Namespace) -> str:
    if error.code() in NO_ANSWER_YET:
        return f"no Kafka answers at {arguments.bootstrap_servers}, or not without the right --option: {error.str()}"
    return f"the marker cannot be reached at {arguments.bootstrap_servers}: {explain(error, arguments.name)}"


def describe(marker: Marker | None) -> str:
    if marker is None:
        return "no marker: nothing was committed under this name, or the topic was deleted"
    if marker.plan == REAL_TIME:
        return f"the name is that of a RealTimeKafkaSink, in query {marker.query_id}"
    planned = "" if marker.plan in (None, ADOPTED) else f", as it was planned: {shown(marker.plan, None)}"
    return f"batch {marker.batch_id} of query {marker.query_id} was committed last{planned}"


def plan(arguments: argparse.Namespace) -> str:
    """Return the plan that the checkpoint has for the batch; without one, the operator's word must do."""
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
