"""Exercises: the student writes the mechanism, and a checker that injects faults judges it.

Importing this package costs nothing: the process that runs a student's code is started dozens of times.
"""

from __future__ import annotations

EXERCISES = (
    "commit_order",
    "idempotent_consumer",
    "one_transaction",
    "transactional_copy",
    "exactly_once_sink",
    "two_phase",
    "late_data",
)


def check(name: str, source=None, **options):
    """Judge a student's code for the exercise `name`; see `labs.exercises.checker.check`."""
    from labs.exercises.checker import check

    return check(name, source, **options)


__all__ = ["EXERCISES", "check"]
