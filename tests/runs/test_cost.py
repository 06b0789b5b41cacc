"""What a transaction costs is measured at each size for each sink, and what was written is complete."""

from __future__ import annotations

import pytest

from labs.exercises.solutions.exactly_once_sink import publish
from labs.runs.cost import BEGIN, COMMIT, OURS, ROWS, SPARKS, WITHOUT, YOURS, measure_cost

pytestmark = pytest.mark.long


def test_each_sink_writes_every_row_once_and_ours_and_yours_tell_their_parts(spark, broker):
    costs = {cost.sink: cost for cost in measure_cost(spark, broker.bootstrap_servers, {20: 2}, own=publish)}
    assert list(costs) == [OURS, WITHOUT, SPARKS, YOURS]
    assert all(cost.complete and cost.rows == 20 and cost.batches == 2 for cost in costs.values())
    assert all(cost.whole > cost.milliseconds > sum(cost.parts.values()) - 1 for cost in costs.values())
    assert list(costs[OURS].parts) == list(costs[YOURS].parts) == [BEGIN, ROWS, COMMIT]
    assert COMMIT not in costs[WITHOUT].parts
    assert costs[SPARKS].parts == {}
