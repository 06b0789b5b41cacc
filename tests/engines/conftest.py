"""The engines that have an environment of their own, for the tests that start them."""

import pytest

from labs.commands.main import main
from labs.engines.environment import ENVIRONMENTS


@pytest.fixture(scope="session")
def installed():
    """Once a machine: the environments stay in the lab's cache."""
    for name in ENVIRONMENTS:
        assert main(["engines", "install", name]) == 0
