"""What one scenario found out, and the symptoms by which a finding is told apart from others."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from labs.equipment.plain_text import one_line, plain

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
    "crashed", "syntax error", …), "unreadable" for an answer that says nothing, or what the model names an
    anomaly ("torn", "out of order", "stuck"), or "could not be judged"; it is empty where nothing is the matter.
    `timeline` has (when, what) of the runs, around what went wrong. `lost` and `doubled` are numbers of results,
    allowed or not. `cause` is the name of the exception that the code raised, or what it was seen to do ("no
    marker"), if that is known; `restarted` tells whether the code had been started before.

    Whatever the student's code said stands here in printable characters: nobody who shows a finding need think of it.
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
    cause: str = ""
    restarted: bool = False
    seconds: float = 0.0

    def __post_init__(self) -> None:
        told = {
            "symptom": one_line(self.symptom),
            "cause": one_line(self.cause),
            "detail": plain(self.detail),
            "hint": plain(self.hint),
            "examples": [one_line(example) for example in self.examples],
            "timeline": [(one_line(when), one_line(what)) for when, what in self.timeline],
        }
        for name, text in told.items():
            object.__setattr__(self, name, text)

    @property
    def failed(self) -> bool:
        return self.grade is Grade.FAILED

    @property
    def reason(self) -> str:
        """Why it did not pass, in one line: the symptom with its numbers, or else with what is known about it."""
        numbers = f"{self.lost} lost, {self.doubled} doubled" if self.lost or self.doubled else ""
        return ": ".join(filter(None, (self.symptom, numbers or self.detail.partition("\n")[0])))

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {**asdict(self), "grade": str(self.grade), "timeline": [list(line) for line in self.timeline]}
