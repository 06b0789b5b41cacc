"""Two workers run the tests: those of a file go to one, which makes once what they share; and what is long is known."""

from __future__ import annotations

import os
import sys

import pytest

from tests.bench import EXHAUSTIVE, needs_bench, reaches
from tests.schedules.test_model import reachable


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="there is one worker: this is not `make tests`")
def test_xdist_knows_the_file_as_a_group(request):
    """With pytest 9.2 it did not, and said nothing."""
    assert request.node.nodeid.endswith("@tests/test_workers.py")


def looks_through_all():
    return reachable


def by_a_helper():
    return looks_through_all()


def looks_at_one():
    return needs_bench


@pytest.mark.parametrize(("function", "found"), [(looks_through_all, True), (by_a_helper, True), (looks_at_one, False)])
def test_what_takes_long_is_found_by_what_it_calls(function, found):
    assert reaches(function, EXHAUSTIVE, sys.modules[__name__], set()) == found
