"""Exercise 3: results and offsets in one SQLite transaction.

    def consume(consumer, database): ...

The topic holds the lines of an access log, `epoch_millis,ip`, in whole seconds: two equal lines are two requests,
so nothing in a record tells a repetition from a new request. Count the requests per 5-second window and IP into the
table `counts`, each request exactly once, wherever the consumer was killed.

`consumer` has poll(), commit() and seek(offset), which makes the record at that offset the next one. `database`
is a sqlite3 connection with the tables
`counts (window_start, ip, count, PRIMARY KEY (window_start, ip))` and `position (next_offset)`, both empty at first: an
UPDATE that finds no row there raises no error.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing

from labs.evidence.auditor.audit import Result
from labs.evidence.auditor.expected import count_by_window
from labs.evidence.auditor.observed import Key
from labs.exercises.checker.rounds import KafkaTrial, read_table, scenarios_of
from labs.exercises.checker.scenario import Exercise, Lab
from labs.pipeline.log.generate import classroom
from labs.pipeline.records import source_value, window_start


def requests() -> list[Key]:
    """Return 36 accesses (epoch millis, IP) in whole seconds, some of them equal."""
    return [(time_ms - time_ms % 1000, ip) for time_ms, ip in classroom(windows=3, clients=3, per_window=4)]


class Counted(KafkaTrial):
    """36 requests, to be counted in a database that outlives the consumer."""

    def __init__(self, lab: Lab):
        accesses = requests()
        values = [source_value(*access) for access in accesses]
        keys = [(window_start(time_ms), ip) for time_ms, ip in accesses]
        super().__init__(lab, values, count_by_window(accesses), keys)
        self.database = self.directory / "counts.db"
        with closing(sqlite3.connect(self.database)) as connection:
            connection.executescript(
                "CREATE TABLE counts (window_start INTEGER, ip TEXT, count INTEGER, PRIMARY KEY (window_start, ip));"
                "CREATE TABLE position (next_offset INTEGER);"
            )

    def tools(self) -> dict:
        return {**super().tools(), "database": str(self.database)}

    def results(self) -> list[Result]:
        return read_table(self.database, "counts")

    def records_of(self, key: Key) -> list[int]:
        return []  # a count does not say which of its requests is missing: the timeline shows the kills instead


EXERCISE = Exercise(
    name="one_transaction",
    task="Results and offsets into one SQLite transaction.",
    entry="labs.exercises.checker.calls:with_database",
    seconds=25,
    scenarios=scenarios_of(
        Counted,
        "consume",
        ("before database commit", "before database.commit", "when the database is about to commit"),
        ("after database commit", "after database.commit", "directly after the database committed"),
        ("between transactions", "between transactions", "when something is committed and the next statement comes"),
        ("before a record", "after consumer.poll", "when a record was polled and nothing done with it"),
    ),
    hints={
        "doubled": "Requests were counted twice: the count was durable, and the position behind it was not. Look for "
        "the kill between the two. One transaction has no between.",
        "doubled/no crash": "Nothing crashed, but the second start counted records again. Where does it begin, and "
        "which offset is the *next* one: that of the last record, or one more? `position` is empty at first, and an "
        "UPDATE that finds no row changes nothing and raises nothing: the timeline says → 0 rows.",
        "lost": "Requests were never counted: the position was durable before their count was. Put both into the same "
        "transaction, and commit once.",
        "lost/no crash": "Nothing crashed, and counts are too small. Two equal lines are two requests: did you take "
        "the second for a repetition? Or did nobody commit?",
        "wrong": "There is a count for a window and IP without requests. A window starts at time - time % 5000.",
    },
)
