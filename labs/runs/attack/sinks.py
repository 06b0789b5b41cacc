"""The sinks of the attack game, each with one fault, and the source code that the player sees.

A seed draws the same sink on every machine.
"""

from __future__ import annotations

import ast
import inspect
import random
import re
import textwrap
from typing import NamedTuple

from labs.pipeline import broken_protocols
from labs.runs.attack.language import STEPS
from labs.schedules.model.drivers_and_network import REQUESTS, Stage
from labs.schedules.model.stages import OLD_CHECKPOINT, OLD_MARKER


class WrongSink(NamedTuple):
    """`stage` is run on Kafka and explored by the model; `hint` says where to look, not what to order."""

    stage: Stage
    hint: str

    @property
    def name(self) -> str:
        return self.stage.name


SINKS = (
    WrongSink(
        Stage("at least once", broken_protocols.at_least_once, idempotent=False),
        "What does Kafka do with a record that comes twice?",
    ),
    WrongSink(
        Stage("idempotent producer only", broken_protocols.at_least_once),
        "Kafka recognises a repeated record by its producer's sequence numbers. Which other producer could send it?",
    ),
    WrongSink(
        Stage("transactions, no marker", broken_protocols.transactions),
        "Between the commit and the note, what tells a driver that the batch is published?",
    ),
    WrongSink(
        Stage("marker read before the epoch", broken_protocols.marker_read_before_fencing),
        "Before a driver gets its epoch, no older driver is fenced: what may still arrive between the two steps?",
    ),
    WrongSink(
        Stage("one epoch for all batches", broken_protocols.one_epoch_for_all_batches),
        "How could Kafka tell the commit of one batch from that of the next?",
    ),
    WrongSink(
        Stage("done batch not drained", broken_protocols.done_batch_not_drained),
        "A batch that is skipped is not computed either. What does the next one start from?",
    ),
    WrongSink(
        Stage("marker compared by its number only", broken_protocols.marker_known_by_its_number, faults=OLD_CHECKPOINT),
        "Two batches may have the same number and not the same records. When?",
    ),
    WrongSink(
        Stage("marker that expires", broken_protocols.no_look_before_fencing, faults=OLD_MARKER),
        "What does a driver conclude if it finds no marker?",
    ),
    WrongSink(
        Stage("marker in a transaction of its own, later", broken_protocols.marker_after_the_commit),
        "There is a moment between two transactions. What does a driver find then?",
    ),
    WrongSink(
        Stage("marker in a transaction of its own, earlier", broken_protocols.marker_before_the_rows),
        "There is a moment between two transactions. What does the marker say then?",
    ),
    WrongSink(
        Stage("noted before it is committed", broken_protocols.noted_before_the_commit),
        "No driver repeats a batch that the checkpoint notes as done.",
    ),
)


def wrong_sink(seed: int) -> WrongSink:
    """Return the sink of a seed. Seeds 0 to 10 have each sink once, seeds 11 to 21 too, and so on."""
    turn, place = divmod(seed, len(SINKS))
    return random.Random(f"attack {turn}").sample(SINKS, len(SINKS))[place]


REMARK = 62  # the column of the comment that gives the step's name in orders
NAMES = {action: noun for noun, action in STEPS.items()} | {"row": "row 0, row 1"}
STEP = re.compile(r'\byield "([a-z ]+)"')


def source_of(stage: Stage) -> str:
    """Return the generator as a student would write it, with the name of each step as a comment.

    Its docstring, which says what is wrong, is left out.
    """
    [function] = ast.parse(textwrap.dedent(inspect.getsource(stage.protocol))).body
    assert isinstance(function, ast.FunctionDef)
    function.name, function.body = "publish", function.body[ast.get_docstring(function) is not None :]
    function.returns = None
    for argument in function.args.args:
        argument.annotation = None
    lines = ast.unparse(function).replace("'", '"').splitlines()
    return "\n".join([*_about(stage), *map(_remarked, lines)])


def _about(stage: Stage) -> list[str]:
    """Return comments for what the source does not show: about Spark, Kafka and the marker."""
    lines = ["# Spark plans the batch before (plan), and notes it as done afterwards (note), if that is no step here."]
    if not stage.idempotent:
        lines.append("# The producer is not idempotent: enable.idempotence=false.")
    if "forget the marker" in stage.faults:
        lines.append("# Kafka deletes the marker after some time.")
    if not stage.transactional:
        lines.append("# There are no transactions: each row is visible at once.")
    return lines


def _remarked(line: str) -> str:
    step = STEP.search(line)
    name = step and NAMES.get(REQUESTS.get(step[1], step[1]))
    if step and step[1] == "next epoch":
        name = "epoch of the next batch"
    return f"{line:<{REMARK}}  # {name}" if name else line
