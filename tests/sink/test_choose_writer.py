"""Who writes the next batch, by what the ones before were like."""

import pytest

from exactly_once_kafka.arrow_rows import IN_MEMORY
from exactly_once_kafka.executors.choose_writer import FIRST_FEW, NextBatch


def after(*batches, few=100):
    next_batch = NextBatch(few)
    for rows, size in batches:
        next_batch.note(rows, size)
    return next_batch


@pytest.mark.parametrize(("few", "tried"), [(0, 0), (100, 100), (FIRST_FEW + 1, FIRST_FEW), (-1, -1)])
def test_first_batch_is_tried_up_to_the_smaller_bound(few, tried):
    assert after(few=few).first_limit == tried
    assert not after(few=few).is_for_driver


@pytest.mark.parametrize(
    ("batches", "for_driver"),
    [
        ([(100, 1)], True),
        ([(101, 1)], False),
        ([(0, 0)], True),
        ([(1, IN_MEMORY)], True),
        ([(1, IN_MEMORY + 1)], False),
        ([(0, 0), (1_000_000, 1)], True),  # a backlog in one batch, and few rows behind it
        ([(0, 0), (101, 1), (101, 1)], False),
        ([(101, 1), (100, 1)], True),
        ([(101, 1), (0, 0), (0, 0)], False),
        ([(100, 1), (101, 1), (0, 0)], True),
    ],
)
def test_driver_writes_unless_the_last_two_batches_with_rows_were_large(batches, for_driver):
    next_batch = after(*batches)
    assert next_batch.is_for_driver == for_driver
    assert next_batch.first_limit == 0


def test_executors_write_everything_if_no_batch_is_small():
    assert not after((0, 0), (5, 1), few=0).is_for_driver


def test_driver_writes_everything_once_executors_turn_out_not_to():
    next_batch = after((1_000_000, 1))
    next_batch.executors_can = False
    assert next_batch.is_for_driver
