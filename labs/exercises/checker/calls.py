"""Calls the student's function in its process, with the arguments that the exercise promises.

Each function here is the `entry` of an exercise: (function, tools, points) -> None.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labs.exercises.checker.clients import ExerciseConsumer, ExerciseDatabase, ExerciseFiles, exercise_producer, handler
from labs.exercises.checker.crash_points import CrashPoints
from labs.exercises.checker.student_module import require_parameters

if TYPE_CHECKING:
    from labs.pipeline.two_phase.prepared import PreparedTransaction


def with_handler(function: Callable, tools: dict[str, Any], points: CrashPoints) -> None:
    """Call function(consumer, handle)."""
    _call(function, points, "consumer, handle", _consumer(tools, points), handler(points, tools["outside"]))


def with_database(function: Callable, tools: dict[str, Any], points: CrashPoints) -> None:
    """Call function(consumer, database)."""
    database = ExerciseDatabase(points, tools["database"])
    _call(function, points, "consumer, database", _consumer(tools, points), database)


def with_producer(function: Callable, tools: dict[str, Any], points: CrashPoints) -> None:
    """Call function(consumer, producer, topic)."""
    producer = exercise_producer(points, tools["servers"], tools["transactional_id"])
    _call(function, points, "consumer, producer, topic", _consumer(tools, points), producer, tools["target"])


def with_files(function: Callable, tools: dict[str, Any], points: CrashPoints) -> None:
    """Call function(lines, batch_id, files) for each batch that is not noted as done, then note it, as Spark would."""
    notes, files = Path(tools["notes"]), ExerciseFiles(points, tools["directory"])
    require_parameters(function, ([], 0, files), "lines, batch_id, files")
    points.journal.write("phase", "call")
    done = len(notes.read_text()) if notes.exists() else 0
    for batch_id, lines in list(enumerate(tools["batches"]))[done:]:
        call = partial(function, list(lines), batch_id, files)
        points.call("publish", call, f"publish({len(lines)} lines, {batch_id}, files)", lambda _: "")
        with notes.open("a") as noted:
            noted.write(".")


def with_prepared(function: Callable, tools: dict[str, Any], points: CrashPoints) -> None:
    """Call function(prepared, decisions, finish) with the transactions open, and the decisions made, at this moment."""
    from labs.pipeline.two_phase.coordinator import DecisionLog
    from labs.pipeline.two_phase.end_transaction import finish as end
    from labs.pipeline.two_phase.end_transaction import lingering

    servers = tools["servers"]

    def finish(transaction: PreparedTransaction, commit: bool) -> None:
        if not isinstance(commit, bool):
            raise TypeError(f"finish(transaction, commit) takes True or False, and not {commit!r}")
        detail = f"finish({_name(transaction)}, {'commit' if commit else 'abort'})"
        points.call("finish", lambda: end(transaction, commit, servers, timeout=10), detail)

    decisions, _ = DecisionLog(tools["decisions"]).read()
    prepared = lingering(servers, tools["prefix"])
    for transaction in prepared:
        points.journal.write("call", f"prepared is {_name(transaction)}")
    for decision in decisions:
        names = ", ".join(map(_name, decision.transactions))
        points.journal.write("call", f"decision {decision.number}, {'commit' if decision.commit else 'abort'}: {names}")
    _call(function, points, "prepared, decisions, finish", prepared, decisions, finish)


def with_log(function: Callable, tools: dict[str, Any], points: CrashPoints) -> None:
    """Call function(log, record) for each record that arrives."""
    from labs.exercises.checker.clients import Arrival, Record, serve

    require_parameters(function, (None, None), "log, record")
    points.journal.write("phase", "call")
    records = [Record(*each) for each in tools["records"]]
    script = [Arrival(*each) for each in tools["script"]]
    serve(function, records, script, Path(tools["directory"]), points)


def with_answers(function: Callable, tools: dict[str, Any], points: CrashPoints) -> None:
    """Call function(batch, has_epoch) in every situation, and write its steps, or why it is no protocol."""
    from labs.exercises.checker.protocol_table import NoProtocol, described, table_of

    points.journal.write("phase", "call")
    try:
        table = table_of(function)
    except NoProtocol as error:
        points.journal.write("call", str(error))
        points.journal.write("answer", str(error), symptom=error.symptom, cause=error.cause)
    else:
        for line in described(table):
            points.journal.write("call", line)
        points.journal.write("answer", "", table=table)


def with_barriers(function: Callable, tools: dict[str, Any], points: CrashPoints) -> None:
    """Call function(task, channel) in every situation, and write what it does into the journal."""
    from labs.exercises.checker.barrier_table import answers

    require_parameters(function, (None, ""), "task, channel")
    points.journal.write("phase", "call")
    points.journal.write("answer", "", table=answers(function))


def _name(transaction: Any) -> str:
    """Return a short name of a transaction, without the long prefix that all of a job share."""
    return f"{transaction.transactional_id.split('-', 2)[-1]} (epoch {transaction.epoch})"


def _consumer(tools: dict[str, Any], points: CrashPoints) -> ExerciseConsumer:
    return ExerciseConsumer(points, tools["servers"], tools["topic"], tools["group"])


def _call(function: Callable, points: CrashPoints, names: str, *arguments: Any) -> None:
    require_parameters(function, arguments, names)
    points.journal.write("phase", "call")
    function(*arguments)
