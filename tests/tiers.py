"""Parameters of which some are quick enough for `make test`, and the others run in `make test-all` alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def in_tiers(values: Iterable[Any], short: Collection[str], name=str) -> list[Any]:
    """Mark each value: bench if its name is one of `short`, else long. Raises ValueError for a name that is none."""
    values = list(values)
    if unknown := set(short) - {name(value) for value in values}:
        raise ValueError(f"there is no such parameter: {', '.join(sorted(unknown))}")
    return [
        pytest.param(value, id=name(value), marks=pytest.mark.bench if name(value) in short else pytest.mark.long)
        for value in values
    ]
