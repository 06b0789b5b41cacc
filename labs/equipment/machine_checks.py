"""Checks of the machine, made in order; a check that needs another one is left out if that failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """The result of one check. `passed` is None if it was not tried; `cure` tells what to do about a failure."""

    name: str
    passed: bool | None
    found: str
    cure: str = ""


class CheckFailed(RuntimeError):
    """The machine lacks something. The first line of the message says what was found, the others what to do."""


@dataclass(frozen=True)
class Step:
    """How to check one thing: `look` returns what it found or raises; `needs` names the steps that must pass before."""

    name: str
    look: Callable[[], str]
    cure: str
    needs: tuple[str, ...] = ()


def follow(steps: list[Step], starting: Callable[[str], object] = lambda name: None) -> Iterator[Check]:
    """Take the steps in order, and yield the result of each; a step that needs one that did not pass is not tried."""
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
