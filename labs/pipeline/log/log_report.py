"""The report on a log: how many lines were good, how many bad and why, with the first examples."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

EXAMPLES_PER_REASON = 3
EXAMPLE_LENGTH = 80
KNOWN_FORMATS = """the common and the combined format of NGINX and Apache, and epoch_millis,ip:
    192.0.2.1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 2326
    192.0.2.1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 2326 "-" "Mozilla/5.0"
    971211336000,192.0.2.1"""


class BadLine(ValueError):
    """A line that is no access; `reason` is a short, stable string to count by."""

    def __init__(self, reason: str, line: bytes = b""):
        super().__init__(f"{reason}: {printable(line)}" if line else reason)
        self.reason = reason
        self.line = line


class NotALog(ValueError):
    """Not one line was understood as an access."""


class Example(NamedTuple):
    file: str
    line_number: int  # from 1
    text: str  # printable


@dataclass
class LogReport:
    """What became of the lines: `lines == good + bad_total` at every moment."""

    lines: int = 0
    good: int = 0
    bad: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[Example]] = field(default_factory=dict)

    @property
    def bad_total(self) -> int:
        return self.bad.total()

    @property
    def complaint(self) -> str:
        """What is wrong where there are lines and not one was understood, with an example; else an empty text."""
        if self.good or not self.lines:
            return ""
        reason, example = max(
            ((reason, example) for reason, found in self.examples.items() for example in found),
            key=lambda each: bool(each[1].text),
        )
        return (
            f"NOT ONE of {self.lines:,} lines was understood as an access. For example, line {example.line_number:,} "
            f"of {example.file} ({reason}):\n    {example.text}\nexpected {KNOWN_FORMATS}"
        )

    def insist(self) -> None:
        """Raise NotALog where there are lines and not one was understood."""
        if self.complaint:
            raise NotALog(self.complaint)

    def accept(self, lines: int) -> None:
        self.lines += lines
        self.good += lines

    def reject(self, reason: str, file: str, line_number: int, line: bytes) -> None:
        self.lines += 1
        self.bad[reason] += 1
        examples = self.examples.setdefault(reason, [])
        if len(examples) < EXAMPLES_PER_REASON:
            examples.append(Example(file, line_number, printable(line)))

    def as_dict(self) -> dict:
        """Return plain values for JSON; `bad` is the total."""
        examples = {reason: [e._asdict() for e in found] for reason, found in self.examples.items()}
        return {
            "lines": self.lines,
            "good": self.good,
            "bad": self.bad_total,
            "bad_by_reason": dict(self.bad.most_common()),
            "bad_examples": examples,
        }

    def __str__(self) -> str:
        text = [f"lines: {self.lines:,} ({self.good:,} good, {self.bad_total:,} bad)"]
        for reason, count in self.bad.most_common():
            text.append(f"  {reason}: {count:,}")
            text += [f"    {e.file}:{e.line_number}: {e.text}" for e in self.examples[reason]]
        return "\n".join([*text, self.complaint] if self.complaint else text)


def printable(line: bytes) -> str:
    """Return the first 80 characters of a line in ASCII, other bytes and control codes escaped."""
    return line[:EXAMPLE_LENGTH].decode("latin-1").encode("unicode_escape").decode("ascii")[:EXAMPLE_LENGTH]
