"""All ways to crash a batch, derived from its protocol: a step that is added to it is crashed as well."""

from __future__ import annotations

from collections.abc import Callable

from exactly_once_kafka.points import BEFORE_CHECKPOINT, MID_ROWS, point
from exactly_once_kafka.protocol import Batch, Marker, Protocol, Step, next_step


def steps_of(protocol, has_epoch, published) -> list[Step]:
    """Return the steps of batch 1 where batch 0 was published before, or batch 1 itself."""
    batch = Batch("query", 1, "plan 1", "plan 0")
    marker = Marker.of(batch) if published else Marker(0, "query", "plan 0")
    running, steps, answer = protocol(batch, has_epoch), list[Step](), None
    while step := next_step(running, answer):
        steps.append(step)
        answer = marker if "look" in step or "marker" in step else True
    return steps


def points_of(steps) -> list[str]:
    """Return the points that a batch passes which takes these steps, in their order."""
    passed = list[str]()
    for step in steps:
        passed += [point("before", step), *([MID_ROWS] if step == "rows" else []), point("after", step)]
    return [*passed, BEFORE_CHECKPOINT]


def crashes(protocol: Callable[[Batch, bool], Protocol], epochs: bool) -> list[list[str]]:
    """Return each point that a batch may pass, behind those at which it is to be crashed before to get there.

    If the sink has `epochs`, a batch has one where the one before it was published in the same run, and none after a
    crash.
    """
    ways = [
        ([], steps_of(protocol, True, published=False)),
        (["before_rows"], steps_of(protocol, not epochs, published=False)),
        (["after_commit"], steps_of(protocol, not epochs, published=True)),
    ]
    first_way = dict[str, list[str]]()
    for before, steps in ways:
        for at in points_of(steps):
            first_way.setdefault(at, [*before, at])
    return list(first_way.values())
