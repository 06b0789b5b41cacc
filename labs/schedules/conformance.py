"""Random walks through the model of the sink, carried out with the real sink on the real Kafka.

After each step, the answer and what a reader sees must be as the model predicts; after the walk, so must the rows and
the marker that Kafka has. If they differ, the model is wrong or the sink is.

The driver of such a replay is the real sink (`SinkDriver`), in a thread of its own. It publishes batch by batch, with
its own protocol and its own transport, and is held at a gate before each request to Kafka.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

from confluent_kafka import KafkaException
from pyspark.sql import SparkSession

from exactly_once_kafka.deadline import Deadline
from exactly_once_kafka.driver_transport import DriverTransport
from exactly_once_kafka.errors import SinkRefused
from exactly_once_kafka.kafka_rows import BatchRows
from exactly_once_kafka.protocol import exactly_once
from exactly_once_kafka.sink import ExactlyOnceKafkaSink
from exactly_once_kafka.transport import Transport
from labs.pipeline.records import WINDOW_MS, result_value
from labs.schedules.model.checker import with_sight
from labs.schedules.model.drivers_and_network import Stage
from labs.schedules.model.state import State
from labs.schedules.replay.counterexample import differences
from labs.schedules.replay.driver import DONE, Driver
from labs.schedules.replay.gates import Ended, GatedTransport, Gates, SmallCheckpoint, planned_batches, serve
from labs.schedules.replay.player import Player
from labs.schedules.replay.replay_bench import CannotPlay, ReplayBench
from labs.schedules.schedule import Event, Schedule, compact

# One row in each batch, so that a request has one row. No transaction times out here: that would take seconds.
WALKED = Stage("the sink", exactly_once, batches=3, rows=1, drivers=3, faults=("deliver again", "lose"))
LENGTH = 60  # moves
WEIGHTS = {"deliver": 8.0, "start": 0.4, "deliver again": 0.5, "lose": 0.2}  # a step of a driver itself has 2


class Walk(NamedTuple):
    """A schedule that a seed chose, and the state of the model after it."""

    schedule: Schedule
    state: State


def walk(seed: int, stage: Stage = WALKED) -> Walk:
    """Choose a walk through the stage by chance. Requests that a replay cannot hold are delivered at once."""
    chance, state, moves = random.Random(seed), stage.start(), list[Event]()
    # Sorted, since a set of texts has another order in each process.
    while options := sorted(_walkable(stage, state), key=lambda each: str(each[0])):
        urgent = [each for each in options if _is_urgent(each[0], moves, state)]
        if len(moves) >= LENGTH and not urgent:
            break
        options = urgent or options
        weights = [WEIGHTS.get(event.action, 2.0) for event, _ in options]
        [(event, following)] = chance.choices(options, weights)
        moves.append(with_sight(stage, event, state, following))
        state = following
    return Walk(Schedule(f"{stage.name}, walk {seed}", compact(moves)), state)


def conforms(drawn: Walk, bench: ReplayBench, spark: SparkSession, stage: Stage = WALKED) -> list[str]:
    """Carry a walk out, and return the differences between the real sink and the model, a line each."""
    with Player(stage, bench, driver=lambda name, settings: SinkDriver(name, settings, spark)) as player:
        return played(drawn, player)


def played(drawn: Walk, player: Player) -> list[str]:
    """Let a player carry a walk out, and return the differences from the model, a line each."""
    try:
        player.play(drawn.schedule)
        found = _answered_otherwise(player, drawn.schedule)
        found += left_otherwise(player, "after the walk", drawn.state)
        return found if drawn.state.refused else found + _finished_otherwise(player, drawn.state)
    except CannotPlay as error:
        return [str(error)]


def _answered_otherwise(player: Player, schedule: Schedule) -> list[str]:
    # The client library does not tell a producer which epoch it has.
    said = [e._replace(answer="ok") if e.answer.startswith("epoch ") else e for e in schedule.events]
    return differences(Schedule("", tuple(said)), Schedule("", tuple(map(_without_error, player.told))))


def _finished_otherwise(player: Player, state: State) -> list[str]:
    """Let a fresh driver go on undisturbed, and return where its end differs from the model's."""
    for _, following in player.stage.ending(state):
        state = following
    ended = player.finish()
    said = [] if ended == DONE else [f"the undisturbed end: the model says {DONE}, and the sink {ended}"]
    return said + left_otherwise(player, "in the end", state)


def left_otherwise(player: Player, when: str, state: State) -> list[str]:
    """Ask Kafka for the visible rows and the marker, and return where they differ from those of the model's state."""
    marker = (state.marker.batch, state.marker.end) if state.marker else None
    pairs = (("rows", player.stage.visible(state), player.visible()), ("marker", marker, player.marker()))
    return [
        f"{when}, {what}: the model says {said}, and Kafka has {found}" for what, said, found in pairs if said != found
    ]


def _walkable(stage: Stage, state: State) -> Iterator[tuple[Event, State]]:
    """Yield what can happen next, but no reading while a marker is undecided: the real sink waits then."""
    for event, following in stage.moves(state):
        if not (event.action == "read marker" and state.pending):
            yield event, following


def _without_error(told: Event) -> Event:
    """Leave out which error Kafka gives for a request that nobody waits for: the reader's view shows its effect.

    Kafka refuses a copy whose transaction has ended, and a request for an epoch while it still aborts a transaction.
    """
    unheard = told.actor == "network" and told.answer.endswith("Error")
    return told._replace(answer="ok") if unheard else told


def _is_urgent(event: Event, moves: list[Event], state: State) -> bool:
    """Tell whether a move delivers a request that was just sent and that a real network cannot hold.

    A reading of the marker is many requests, which cannot be held as one. And a fenced driver learns that it is fenced
    from a request that the model does not have.
    """
    if not moves or event.action != "deliver" or event.request != moves[-1].action or event.whose != moves[-1].actor:
        return False
    stale = event.epoch is not None and event.epoch != state.epoch
    return event.request == "read marker" or stale


PATIENCE = 60.0  # seconds
ENDING = 10.0  # seconds that a driver may need to end its present step


class SinkDriver(Driver):
    """The real sink in a thread. A thread can be neither frozen nor killed.

    While it counts as asleep or dead, the player sends it no word and reads no answer from it.
    """

    def __init__(self, name: str, settings: dict[str, Any], spark: SparkSession):
        super().__init__(name)
        self._spark, self._over = spark, threading.Event()
        self._thread = threading.Thread(
            target=serve, args=(self._try_to_publish, settings, self.theirs), name=name, daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        super().close()
        # If Python ends while the thread is in a Kafka client, the thread may use memory that is freed.
        self._thread.join(ENDING)

    def _try_to_publish(self, settings: dict[str, Any], gates: Gates) -> None:
        try:
            self._publish(settings, gates)
        except (Ended, SinkRefused, KafkaException):
            raise
        except Exception as error:  # a thread has no log in which a player could read it
            raise Ended(f"{type(error).__name__}: {error}") from error

    def _publish(self, settings: dict[str, Any], gates: Gates) -> None:
        sink = ExactlyOnceKafkaSink(
            settings["name"],
            settings["topic"],
            bootstrap_servers=settings["bootstrap_servers"],
            writers="driver",
            client_id=settings["client_id"],
            transaction_timeout_ms=settings["transaction_timeout_ms"],
        )
        checkpoint = SmallCheckpoint(settings["checkpoint"])
        query: Any = _Query(checkpoint, self._over)
        transport = cast(DriverTransport, sink.transport_for(self._spark, Deadline(PATIENCE, query.stopped)))
        for batch in planned_batches(settings, gates, checkpoint):
            records = checkpoint.records(batch.batch_id)
            values = [(result_value(r * WINDOW_MS, f"record {r}", 1).decode(),) for r in records]
            rows = BatchRows(self._spark.createDataFrame(values, "value string"), settings["topic"])
            transport.start(batch, rows, query, Deadline(PATIENCE, query.stopped), lambda: None)
            gated = GatedTransport(
                transport,
                gates,
                checkpoint,
                batch.batch_id,
                lambda: transport.pending._thread if transport.pending else None,
            )
            sink.publish(batch, cast(Transport, gated))
            gated.note()


class _Query:
    """What the sink needs of a running query: whether it was stopped, and the note about the topic of its marker."""

    def __init__(self, checkpoint: SmallCheckpoint, over: threading.Event):
        self._file, self.stopped = checkpoint.directory / "exactly-once", over.is_set

    def checkpoint_note(self, name: str) -> _Query:
        return self

    @property
    def name(self) -> str:
        return self._file.name

    def read(self) -> str | None:
        return self._file.read_text() if self._file.exists() else None

    def others(self) -> list[str]:
        return []

    def write(self, text: str) -> None:
        self._file.write_text(text)
