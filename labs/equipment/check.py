"""What a check is, and how checks that build on each other are made in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """What one check found. `passed` is None if it was not tried; `cure` tells what to do about a failure."""

    name: str
    passed: bool | None
    found: str
    cure: str = ""


class Unfit(RuntimeError):
    """The machine lacks something; the message says what was found."""


@dataclass(frozen=True)
class Step:
    """How to check one thing: `look` returns what it found or raises; `needs` names the steps it builds on."""

    name: str
    look: Callable[[], str]
    cure: str
    needs: tuple[str, ...] = ()


def follow(steps: list[Step], starting: Callable[[str], object] = lambda name: None) -> Iterator[Check]:
    """Take the steps in order, leaving out those that build on one that failed."""
    passed: set[str] = set()
    for step in steps:
        lacking = [need for need in step.needs if need not in passed]
        if lacking:
            yield Check(step.name, None, f"not tried, because it needs: {', '.join(lacking)}")
            continue
        starting(step.name)
        try:
            check = Check(step.name, True, step.look())
            passed.add(step.name)
        except Exception as error:
            found, _, more = (str(error) or repr(error)).partition("\n")
            check = Check(step.name, False, found, f"{more}\n{step.cure}".strip())
        yield check
