"""The lab's parser and a second one, which shares nothing with it, read the same out of every line."""

from __future__ import annotations

import random

import pytest

from labs.pipeline.log.access_log import parse_line
from labs.pipeline.log.log_report import BadLine
from tests.pipeline.log import lines
from tests.pipeline.log.odd_lines import SEEDS, mutated
from tests.pipeline.log.second_parser import read_line


def first_reading(line: bytes):
    try:
        return parse_line(line)
    except BadLine:
        return None


def differences(seed: int, count: int) -> list:
    """Return the lines that are read differently, with both readings; at most ten."""
    draw, found, good = random.Random(seed), [], 0
    for _ in range(count):
        line = mutated(draw)
        one, other = first_reading(line), read_line(line)
        good += one is not None
        if one != other:
            found.append((line, one, other))
            if len(found) == 10:
                break
    else:
        assert 0.2 < good / count < 0.8  # lines of both kinds
    return found


def test_both_know_the_lines_with_known_verdicts():
    known = [*lines.SAME_ACCESS, *lines.NAMED, *lines.HOSTILE, *(line for line, _ in lines.BAD), *SEEDS]
    known += [lines.with_time(stamp) for stamp in lines.NO_TIMES]
    known += [lines.with_client(client) for client in [*lines.NO_CLIENTS, *(written for written, _ in lines.CLIENTS)]]
    read = [(line, first_reading(line.removesuffix(b"\n")), read_line(line.removesuffix(b"\n"))) for line in known]
    assert [each for each in read if each[1] != each[2]] == []


def test_a_few_thousand_mutated_lines_are_read_the_same():
    assert differences(seed=13, count=6_000) == []


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("count", [100_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_many_mutated_lines_are_read_the_same(count):
    assert differences(seed=1, count=count) == []
