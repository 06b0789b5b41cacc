"""What a lesson's cell shows while the checker works: which scenario is under way, and the verdicts so far.

One display below the cell, changed in place by the thread that executes the cell, and empty when the check is over: the
report follows, and an executed notebook is the same however long it took. Nothing is shown where there is no kernel.
"""

from __future__ import annotations

from typing import Any

from IPython.core.getipython import get_ipython
from IPython.display import display

from labs.exercises.checker.finding import Finding, Grade
from labs.exercises.checker.scenario import Exercise

SIGNS = {Grade.PASSED: "✓", Grade.FAILED: "✕", Grade.UNKNOWN: "?", Grade.NOT_RUN: "–"}


class CheckProgress:
    """The display of one check. `starting` and `judged` are what the checker tells."""

    def __init__(self, exercise: Exercise):
        self._exercise, self._lines = exercise, list[str]()
        in_kernel = getattr(get_ipython(), "kernel", None) is not None
        self._handle: Any = display({}, raw=True, display_id=True) if in_kernel else None
        self._show("getting ready")

    def starting(self, scenario: str) -> None:
        self._show(f"{scenario} ({len(self._lines) + 1} of {len(self._exercise.scenarios)})")

    def judged(self, finding: Finding) -> None:
        why = f" ({finding.reason})" if finding.grade in (Grade.FAILED, Grade.UNKNOWN) and finding.reason else ""
        self._lines.append(f"  {SIGNS[finding.grade]} {finding.scenario}: {finding.grade}{why}")

    def close(self) -> None:
        """Show nothing more."""
        if self._handle is not None:
            self._handle.update({}, raw=True)

    def _show(self, under_way: str) -> None:
        if self._handle is not None:
            name, seconds = self._exercise.name, self._exercise.seconds
            head = f"{name} is checked: about {seconds} s if all goes well, more on a busy machine"
            text = "\n".join([head, *self._lines, f"  … {under_way}"])
            self._handle.update({"text/plain": text}, raw=True)
