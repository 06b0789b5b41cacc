"""What the journal says of a call: its arguments in a few printable characters, and what came of it."""

from __future__ import annotations

import sqlite3

import pytest
from confluent_kafka import TopicPartition

from labs.exercises.checker.clients import ExerciseDatabase
from labs.exercises.checker.crash_points import CrashPoints, RunJournal, _brief, read_journal


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        (b'{"ip": "192.0.2.1"}', '{"ip": "192.0.2.1"}'),
        (b"CGMDv2\x00\x00\x01\xff" + b"\x00" * 90, "100 bytes"),
        (b"\x1b[2Jpassed\x07", "11 bytes"),
        ([TopicPartition("source", 0, 7)], "offset 7 of source"),
        ("a\n  b", "a b"),
        ("x" * 10_000_000, "x" * 39 + "…"),
    ],
)
def test_argument_is_said_in_a_few_words(argument, said):
    assert _brief(argument) == said


@pytest.fixture
def database(tmp_path):
    return ExerciseDatabase(CrashPoints(RunJournal(tmp_path / "journal", 0.0)), str(tmp_path / "x.db"))


def test_update_that_finds_no_row_is_seen(database, tmp_path):
    database.execute("CREATE TABLE position (next_offset INTEGER)")
    database.execute("UPDATE position SET next_offset = ?", (1,))
    database.execute("INSERT INTO position VALUES (?)", (1,))
    database.execute("SELECT * FROM position")
    with pytest.raises(sqlite3.OperationalError):
        database.execute("UPDATE nothing SET x = 1")
    database.commit()
    said = [event["what"] for event in read_journal(tmp_path / "journal") if event["kind"] == "call"]
    assert said[1:] == [
        "database.execute(UPDATE position SET next_offset = ?, (1,)) → 0 rows",
        "database.execute(INSERT INTO position VALUES (?), (1,)) → 1 row",
        "database.execute(SELECT * FROM position)",
        "database.execute(UPDATE nothing SET x = 1) raised OperationalError",
        "database.commit()",
    ]
