"""What one scenario found out, and the symptoms by which a finding is told apart from others."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

LOST, DOUBLED, WRONG, HIDDEN = "lost", "doubled", "wrong", "hidden"


class Grade(StrEnum):
    """Unknown: the scenario could not be judged, which is not a success."""

    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"
    NOT_RUN = "not run"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The judgement of one scenario.

    `symptom` is "lost", "doubled", "wrong" or "hidden" for wrong results, or how the code ended ("hung",
    "crashed", "syntax error", …), "unreadable" for an answer that says nothing, or what the model
    names an anomaly ("torn", "out of order", "stuck"); it is empty where nothing is the matter. `timeline` has
    (when, what) of the runs, around what went wrong. `lost` and `doubled` are numbers of results, allowed or not.
    """

    scenario: str
    action: str
    grade: Grade
    symptom: str = ""
    detail: str = ""
    lost: int = 0
    doubled: int = 0
    examples: list[str] = field(default_factory=list)
    timeline: list[tuple[str, str]] = field(default_factory=list)
    hint: str = ""
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        return self.grade is Grade.FAILED

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {**asdict(self), "grade": str(self.grade), "timeline": [list(line) for line in self.timeline]}
