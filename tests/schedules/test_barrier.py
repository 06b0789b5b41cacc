"""Barriers: what each rule makes of a checkpoint, in every order of delivery, and the pictures of it."""

from __future__ import annotations

import json
import random
import xml.etree.ElementTree as ElementTree

import pytest

from labs.exercises.solutions.barrier import on_barrier as solution
from labs.schedules.barrier import (
    BARRIER,
    DOUBLED,
    LOG,
    LOST,
    STUCK,
    TRUTH,
    BarrierError,
    barriers_together,
    deliveries,
    explore_orders,
    restored,
    start,
)
from labs.schedules.barrier_steps import (
    RULES,
    aligns,
    barrier_data,
    barrier_steps,
    counts_on_until_the_last,
    draw_barrier_job,
    draw_barriers,
    records_what_is_under_way,
    script,
    stores_at_the_first,
)


def never_unblocks(task, channel):
    task.block(channel)
    if task.arrived == task.channels:
        task.snapshot()
        task.forward()


def does_nothing(task, channel):
    pass


def test_truth_is_what_the_log_holds():
    keys = [element for part in LOG for element in part if element != BARRIER]
    assert {"a": keys.count("a"), "b": keys.count("b"), "total": len(keys)} == TRUTH


@pytest.mark.parametrize("rule", [aligns, records_what_is_under_way, solution])
def test_right_rule_is_right_in_every_order(rule):
    found = explore_orders(rule)
    assert found.anomaly == ""
    assert found.counts == {name: (count, count) for name, count in TRUTH.items()}


@pytest.mark.parametrize(
    ("rule", "anomaly", "counts_of_a"),
    [(stores_at_the_first, LOST, (3, 5)), (counts_on_until_the_last, DOUBLED, (5, 7)), (never_unblocks, STUCK, (5, 5))],
)
def test_wrong_rule_is_found_with_the_order_that_shows_it(rule, anomaly, counts_of_a):
    found = explore_orders(rule)
    assert (found.anomaly, found.counts["a"]) == (anomaly, counts_of_a)
    assert found.shortest is not None
    # The order can be followed from the start, and ends where it says.
    job = start()
    for step in found.shortest.deliveries:
        job = next(after for delivery, after in deliveries(job, rule) if delivery == step)
    assert restored(job) == found.shortest.counts


def test_what_is_never_stored_is_never_complete():
    found = explore_orders(does_nothing)
    assert (found.anomaly, found.counts) == (STUCK, {})


def test_no_random_order_ends_in_anything_that_was_not_found():
    chance = random.Random(7)
    for rule in RULES.values():
        found = explore_orders(rule)
        for _ in range(200):
            job = start()
            while following := list(deliveries(job, rule)):
                _, job = chance.choice(following)
                if job.complete:
                    for name, count in restored(job).items():
                        least, most = found.counts[name]
                        assert least <= count <= most


def test_barriers_that_come_together_do_no_harm_to_a_rule_that_stores_too_early():
    assert barriers_together(stores_at_the_first).anomaly == ""
    assert barriers_together(never_unblocks).anomaly == STUCK


@pytest.mark.parametrize(
    ("act", "told"),
    [
        (lambda task, channel: (task.forward(), task.forward()), "sends the barrier on a second time"),
        (lambda task, channel: task.block("partition 7"), "has no channel 'partition 7'; it has"),
        (lambda task, channel: task.record(0), "has no channel 0"),
        (
            lambda task, channel, calls=[]: calls.append(1) or (len(calls) % 2 and task.snapshot()),
            "two different things",
        ),
        (lambda task, channel: (yield), "has a yield in it"),
    ],
)
def test_what_a_task_cannot_do_is_one_clear_line(act, told):
    with pytest.raises(BarrierError) as refused:
        explore_orders(act)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_task_has_room_for_nothing_else():
    def keeps(task, channel):
        task.seen = [channel]

    with pytest.raises(AttributeError):
        explore_orders(keeps)


@pytest.mark.parametrize("rule", [stores_at_the_first, counts_on_until_the_last, never_unblocks])
def test_picture_says_what_the_order_says(rule):
    order = explore_orders(rule).shortest
    assert order is not None
    drawing = draw_barriers(order)
    ElementTree.fromstring(drawing)
    for delivery in order.deliveries:
        assert str(delivery) in drawing.words


def test_explorable_has_a_picture_and_words_for_every_delivery_of_every_rule():
    data = barrier_data()
    assert data.keys() == RULES.keys()
    for rule, course in data.items():
        assert len(course["pictures"]) == len(course["words"]) == len(course["wrong"]), rule
        for picture in course["pictures"]:
            ElementTree.fromstring(picture)
    last = {rule: course["words"][-1] for rule, course in data.items()}
    assert "task a 3 of 5" in last["stores at the first"]
    assert "task a 7 of 5" in last["counts on until the last"]
    assert "task a 5 of 5" in last["aligns"]
    assert "task a 5 of 5" in last["records what is under way"]
    assert [rule for rule, course in data.items() if course["wrong"][-1]] == [*RULES][:2]
    json.dumps(data)


def test_explorable_stands_still_as_a_picture_that_a_page_can_bring_to_life():
    widget = barrier_steps("aligns", 3)
    bundle = widget._repr_mimebundle_()
    bundle = bundle[0] if isinstance(bundle, tuple) else bundle
    assert 'data-barrier="{&quot;rule&quot;: &quot;aligns&quot;, &quot;step&quot;: 3}"' in bundle["text/html"]
    assert bundle["text/plain"].startswith("aligns, after 3 deliveries: ")
    assert "export default" not in script()


@pytest.mark.parametrize(("arguments", "told"), [(("guesses",), "no rule 'guesses'"), (("aligns", 99), "no step 99")])
def test_what_the_explorable_does_not_have_is_refused(arguments, told):
    with pytest.raises(ValueError, match=told):
        barrier_steps(*arguments)


def test_job_is_drawn_with_what_is_on_its_way():
    assert "from partition 0 to task a: a, a, the barrier" in draw_barrier_job().words
