"""What a round of a Spark exercise notes of its query."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from labs.exercises.checker.spark_calls import note_state
from labs.exercises.late_data import forgets


def noted(progress) -> list[tuple]:
    events: list[tuple] = []
    journal = SimpleNamespace(write=lambda kind, what, **more: events.append((kind, more)))
    points: Any = SimpleNamespace(journal=journal)
    note_state(progress, points)
    return events


def test_query_that_had_nothing_left_to_do_says_nothing_of_its_state():
    assert noted(None) == []
    run: Any = SimpleNamespace(events=[])
    assert "its state is unknown" in forgets(run)


def test_rows_of_all_operators_are_noted():
    operators = [SimpleNamespace(numRowsTotal=rows) for rows in (5, 9)]
    assert noted(SimpleNamespace(stateOperators=operators)) == [("state", {"rows": 14})]
