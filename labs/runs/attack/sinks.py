"""The sinks of the attack game: each has one thing wrong with it, and one seed draws the same one everywhere."""

from __future__ import annotations

import random
from typing import NamedTuple

from labs.schedules.model.kafka import Stage
from labs.schedules.model.stages import MARKER_FIRST, OLD_CHECKPOINT, OLD_MARKER, PLAIN, SINK, TRANSACTION


class WrongSink(NamedTuple):
    """`stage` is what the bench carries out and the model explores; `hint` says where to look, not what to write."""

    stage: Stage
    hint: str

    @property
    def name(self) -> str:
        return self.stage.name


MARKER_LATER = ("plan", "fence", "read marker", "rows", "commit", "marker", "commit", "note")
MARKER_EARLIER = ("plan", "fence", "read marker", "marker", "commit", "rows", "commit", "note")
NOTED_FIRST = ("plan", "fence", "read marker", "rows", "marker", "note", "commit")

SINKS = (
    WrongSink(Stage("at least once", PLAIN, idempotent=False), "What does Kafka do with a record that comes twice?"),
    WrongSink(
        Stage("idempotent producer only", PLAIN),
        "Kafka knows a repeated record by its producer's numbers. Who else could send it?",
    ),
    WrongSink(
        Stage("transactions, no marker", TRANSACTION),
        "Between the commit and the note, who knows that the batch is published?",
    ),
    WrongSink(
        Stage("marker read before the epoch", MARKER_FIRST),
        "Until the epoch is there, nobody is fenced: what may still arrive between the two?",
    ),
    WrongSink(
        Stage("one epoch for all batches", SINK, keeps_epoch=True),
        "How could Kafka tell the commit of one batch from that of the next?",
    ),
    WrongSink(
        Stage("done batch not drained", SINK, drains=False),
        "A batch that is skipped is not computed either. What does the next one start from?",
    ),
    WrongSink(
        Stage("marker compared by its number only", SINK, marker_says_plan=False, luck=OLD_CHECKPOINT),
        "Two batches may have the same number and not the same records. When?",
    ),
    WrongSink(
        Stage("marker that expires", SINK, luck=OLD_MARKER),
        "What does a driver believe that finds no marker at all?",
    ),
    WrongSink(
        Stage("marker in a transaction of its own, later", MARKER_LATER),
        "Two transactions have a moment between them.",
    ),
    WrongSink(
        Stage("marker in a transaction of its own, earlier", MARKER_EARLIER),
        "Two transactions have a moment between them; here the marker says too much in it.",
    ),
    WrongSink(
        Stage("noted before it is committed", NOTED_FIRST),
        "What the checkpoint notes as done is never looked at again.",
    ),
)


def wrong_sink(seed: int) -> WrongSink:
    """Return the sink of a seed, the same one on every machine; seeds 0 to 10 have one of each kind, and so on."""
    turn, place = divmod(seed, len(SINKS))
    return random.Random(f"attack {turn}").sample(SINKS, len(SINKS))[place]
