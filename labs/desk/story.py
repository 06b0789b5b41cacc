"""Steps that build on one another, each in a cell of its own, any of which can be run again.

    def begin():
        bench.new_topic("results")
        return transactional_producer(bench.fresh("counter"))

    story = Story(begin)

    @story
    def window_1_is_committed(counter):
        ...

Executing the cell takes the step. A step that follows the one taken last goes on from there. One that is run again, or
that comes after a step which failed or was interrupted, finds what the steps before it leave: the story begins anew,
and takes them first. Where it stops: a step that is renamed is a new one, at the end.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Generic, TypeVar

Given = TypeVar("Given")
Step = Callable[[Given], object]


class Story(Generic[Given]):
    """`begin()` makes all that the story begins with, anew each time; each step is handed what it returns.

    `given` is what `begin` returned last.
    """

    given: Given

    def __init__(self, begin: Callable[[], Given]):
        self._begin, self._steps = begin, dict[str, Step[Given]]()
        self._taken: int | None = None  # how many steps; None: it has not begun, or a step was cut short

    def __call__(self, step: Step[Given]) -> Step[Given]:
        """Take the step, after those before it where they have to be taken again. What those print is not shown."""
        self._steps[step.__name__] = step  # one that is there already keeps its place
        before = list(self._steps).index(step.__name__)
        taken, self._taken = self._taken, None
        if taken != before:
            self.given = self._begin()
            for earlier in list(self._steps.values())[:before]:
                with contextlib.redirect_stdout(io.StringIO()):
                    earlier(self.given)
        step(self.given)
        self._taken = before + 1
        return step
