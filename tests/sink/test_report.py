"""What the driver makes of the tasks' reports: it commits only if nothing is missing, and nobody ran twice."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from exactly_once_kafka.errors import IncompleteWrite
from exactly_once_kafka.executors import transport
from exactly_once_kafka.executors.report import Report, counted

ROWS: Any = SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=None))  # of whom nothing is asked here


def test_rows_are_counted_over_all_tasks():
    assert counted([Report(3, written=[("t", 0, 2), ("t", 1, 1)]), Report(), Report(1, written=[("t", 2, 1)])]) == 4


def test_row_that_was_not_acknowledged_is_missed():
    with pytest.raises(IncompleteWrite, match="2 of 3 rows"):
        counted([Report(3, written=[("t", 0, 2)])])


@pytest.mark.parametrize(
    ("spark_says", "reports", "again"),
    [
        (True, [Report(1, stage=7)], True),
        (False, [Report(1, stage=7), Report(stage=7)], False),
        (None, [Report(1, stage=7)], False),  # a task with rows tells itself whether it ran again
    ],
    ids=["again", "once", "forgotten, but each task had rows"],
)
def test_tasks_that_ran_again_are_told_by_spark(monkeypatch, spark_says, reports, again):
    monkeypatch.setattr(transport, "ran_again", lambda *_: spark_says)
    assert transport._ran_again(reports, ROWS) == again


def test_stage_that_spark_has_forgotten_is_not_committed_if_a_task_had_no_rows(monkeypatch):
    monkeypatch.setattr(transport, "ran_again", lambda *_: None)
    with pytest.raises(IncompleteWrite, match="retainedStages"):
        transport._ran_again([Report(1, stage=7), Report(stage=7)], ROWS)
