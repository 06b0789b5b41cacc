"""The engines that have an environment of their own, for the tests that start them."""

import pytest

from labs.commands.main import main
from labs.engines.catalogue import ENGINES
from labs.engines.environment import ENVIRONMENTS, find_compiler

USABLE = [name for name in ENGINES if name != "streams" or find_compiler()]


@pytest.fixture(scope="session")
def installed():
    """Once a machine: the environments stay in the lab's cache."""
    for name in ENVIRONMENTS:
        if name in USABLE:
            assert main(["engines", "install", name]) == 0
