"""One room for the tests of a file: each begins an act of its own."""

from __future__ import annotations

import pytest

from labs.room.room import Room


@pytest.fixture(scope="module")
def room():
    with Room() as opened:
        yield opened
