"""Exercise 11: a table of what on_barrier does is all that the judge has, and a wrong rule is shown with an order."""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path

import pytest

from labs.exercises.barrier import as_finding
from labs.exercises.checker.barrier_table import answers, from_table
from labs.exercises.checker.scenario import NoTable
from labs.exercises.solutions.barrier import on_barrier
from labs.schedules.barrier import TRUTH, deliveries, explore_orders, restored, start
from labs.schedules.barrier_steps import RULES

WRONG = Path(__file__).parent / "wrong"
WRONG_RULES = (
    "stores_at_the_first",
    "counts_on_until_the_last",
    "blocks_for_ever",
    "forgets_what_is_under_way",
    "forwards_before_it_stores",
    "is_right_for_one_speed_only",
)


@pytest.mark.parametrize("name", WRONG_RULES)
def test_each_wrong_rule_is_shown_with_an_order_that_breaks_it(name):
    file = WRONG / f"barrier__{name}.py"
    [symptom] = re.findall(r"^Caught: (\w+)\.", ast.get_docstring(ast.parse(file.read_text())) or "")
    rule = runpy.run_path(str(file))["on_barrier"]
    order = explore_orders(rule).shortest
    assert order is not None
    shown = as_finding(order)
    assert shown["symptom"] == symptom
    assert [what for _, what in shown["timeline"]] == [str(each) for each in order.deliveries]
    assert all(str(each) in shown["picture"].words for each in order.deliveries)
    job = start()  # follow it from the start: it ends with wrong counts, or the job stands still
    for step in order.deliveries:
        [job] = [after for delivery, after in deliveries(job, rule) if delivery == step]
    if symptom == "stuck":
        assert not list(deliveries(job, rule))
    else:
        assert job.complete
        assert restored(job) == order.counts != TRUTH


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
