"""Exercise 2: deduplicate what comes from an at-least-once topic, across restarts.

    def consume(consumer, database): ...

The topic holds 20 results, many of them twice or three times: right behind each other, a batch later, or much
later. Each record is `{"window_start": …, "ip": …, "count": …}`; window_start and ip say which result it is. Each
must be in the table `results` exactly once, wherever the consumer was killed.

`consumer` has poll() and commit() as in exercise 1. `database` is a sqlite3 connection with the table
`results (window_start, ip, count)`; you may make tables and indexes of your own.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing

from labs.evidence.auditor.audit import Result
from labs.evidence.auditor.observed import Key
from labs.exercises.checker.rounds import KafkaTrial, read_table, results_of_a_log, scenarios_of
from labs.exercises.checker.scenario import Exercise, Lab
from labs.pipeline.records import result_value

Counted = tuple[Key, int]  # a result and its count


def with_repetitions(results: list[Counted], batch: int = 5) -> list[Counted]:
    """Return what an at-least-once sink makes of four batches: repeated after crashes, one result much later.

    Most results of the first batch come only once, so that no later repetition hides their loss.
    """
    batches = [results[n : n + batch] for n in range(0, len(results), batch)]
    first, second, third, fourth = batches
    return [*first, *second, *second, second[0], second[0], *third, *second, *third, *fourth, first[0]]


class Deduplicated(KafkaTrial):
    """38 records which hold 20 results; the database outlives the consumer."""

    def __init__(self, lab: Lab):
        expected = results_of_a_log()
        stream = with_repetitions(list(expected.items()))
        super().__init__(
            lab, [result_value(*key, count) for key, count in stream], expected, [key for key, _ in stream]
        )
        self.database = self.directory / "results.db"
        with closing(sqlite3.connect(self.database)) as connection:
            connection.execute("CREATE TABLE results (window_start INTEGER, ip TEXT, count INTEGER)")
            connection.commit()

    def tools(self) -> dict:
        return {**super().tools(), "database": str(self.database)}

    def results(self) -> list[Result]:
        return read_table(self.database, "results")


EXERCISE = Exercise(
    name="idempotent_consumer",
    task="Deduplicate downstream of an at-least-once topic, across restarts.",
    entry="labs.exercises.checker.calls:with_database",
    seconds=25,
    scenarios=scenarios_of(
        Deduplicated,
        "consume",
        ("before database commit", "before database.commit", "when the database is about to commit"),
        ("after database commit", "after database.commit", "directly after the database committed"),
        ("before offset commit", "before consumer.commit", "when the offset is about to be committed"),
        ("after offset commit", "after consumer.commit", "directly after the offset was committed"),
        ("between transactions", "between transactions", "when something is committed and the next statement comes"),
    ),
    hints={
        "doubled": "A result was written although an earlier run had written it. What does a restarted process still "
        "know? Only what is in the database. Can the database itself refuse the second one?",
        "doubled/no crash": "Nothing crashed, and a repetition came through. Repetitions need not follow each other: "
        "compare with everything that was ever written, not with the last record.",
        "lost": "A result is missing although its record was read. Either its offset was committed before the "
        "database, or it was noted as seen in another transaction than the one that wrote it.",
        "lost/no crash": "Nothing crashed, and results are missing: which two results did you take for the same? It "
        "takes window_start and ip to name one. Or did nobody commit the database?",
        "wrong": "The table holds something that is not in the topic. Write window_start, ip and count as they are.",
    },
)
