"""Exercise 11: what the student's process says of on_barrier is a table, and the judge trusts nothing else."""

from __future__ import annotations

import pytest

from labs.exercises.checker.barrier_table import answers, from_table
from labs.exercises.checker.scenario import NoTable
from labs.exercises.solutions.barrier import on_barrier
from labs.schedules.barrier import explore_orders
from labs.schedules.barrier_steps import RULES


@pytest.mark.parametrize("rule", [*RULES.values(), on_barrier])
def test_table_does_what_the_function_does(rule):
    assert explore_orders(from_table(answers(rule))) == explore_orders(rule)


def test_table_that_lacks_a_situation_is_no_evidence():
    with pytest.raises(NoTable, match="does not say what on_barrier does"):
        explore_orders(from_table(answers(on_barrier)[:-1]))


@pytest.mark.parametrize("table", [None, 7, [[]], [["a", "partition 0", {}, {"x": 1}]], [["a", "b", None, None]]])
def test_what_is_no_table_is_no_evidence(table):
    with pytest.raises(NoTable):
        from_table(table)
