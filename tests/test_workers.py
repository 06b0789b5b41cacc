"""Three workers run the tests: those of a file go to one of them, which makes once what they share."""

from __future__ import annotations

import os

import pytest


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="there is one worker: this is not `make test`")
def test_xdist_knows_the_file_as_a_group(request):
    """With pytest 9.2 it did not, and said nothing."""
    assert request.node.nodeid.endswith("@tests/test_workers.py")
