"""States are tuples: a state with one thing changed is a new tuple."""

from __future__ import annotations

from typing import TypeVar

Item = TypeVar("Item")


def put(values: tuple[Item, ...], n: int, value: Item) -> tuple[Item, ...]:
    """Return the values with the n-th replaced."""
    return (*values[:n], value, *values[n + 1 :])


def without(luck: tuple[str, ...], what: str) -> tuple[str, ...]:
    """Return what may still go wrong once `what` has."""
    return tuple(each for each in luck if each != what)
