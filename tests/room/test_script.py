"""Scripts are data: each names orders and conditions that there are, and a seed draws the same session each time."""

from __future__ import annotations

import pytest

from labs.room.orders import ORDERS, STRIKES
from labs.room.script import CONDITIONS, SHORT, WITHOUT_MARKER, Do, random_script
from labs.room.state import STAGE_NAMES, empty_state

SCRIPTS = [
    SHORT,
    WITHOUT_MARKER,
    *(random_script(n, stage=stage) for n in range(9) for stage in STAGE_NAMES),
]


@pytest.mark.parametrize("script", SCRIPTS, ids=range(len(SCRIPTS)))
def test_a_script_gives_orders_and_waits_for_what_there_is(script):
    for step in script:
        if isinstance(step, Do):
            assert set(step.arguments) <= set(ORDERS[step.order])
        else:
            assert CONDITIONS[step.condition](empty_state()) <= 0
    assert script[-1] == Do("finish")


@pytest.mark.parametrize("stage", STAGE_NAMES)
def test_a_seed_draws_the_same_session_of_so_many_strikes(stage):
    assert random_script(7, 6, stage) == random_script(7, 6, stage)
    assert random_script(7, 6, stage) != random_script(8, 6, stage)
    for seed in range(20):
        orders = [step.order for step in random_script(seed, 6, stage) if isinstance(step, Do)]
        assert sum(order in STRIKES or order == "start-driver" for order in orders) >= 6
        held = orders.count("hold-commit")
        assert held == orders.count("deliver-commit")
        assert not held or stage in STAGE_NAMES[3:]


def test_all_kinds_of_strike_are_drawn():
    drawn = {step.order for seed in range(30) for step in random_script(seed) if isinstance(step, Do)}
    wanted = {"kill-driver", "freeze-driver", "start-driver", "kill-broker", "freeze-broker", "cut-network"}
    assert wanted | {"hold-commit"} <= drawn
