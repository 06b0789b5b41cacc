"""The report on a log: how many lines were good, how many bad and why, with the first examples."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

EXAMPLES_PER_REASON = 3
EXAMPLE_LENGTH = 80
KNOWN_FORMATS = """the common and the combined format of NGINX and Apache, and epoch_millis,ip:
    192.0.2.1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 2326
    192.0.2.1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 2326 "-" "Mozilla/5.0"
    971211336000,192.0.2.1"""

# Reason: what was expected instead, and what to do.
WANTED = {
    "bad time": "a time like 10/Oct/2000:13:55:36 -0700 or 2000-10-10T13:55:36-07:00, "
    "or milliseconds since 1970 (13 digits, not seconds); the years 1970 to 5138",
    "bad address": "the client's address or host name, without port, quotes or brackets",
    "text before the client": "the client at the beginning of the line; cut off the text before it, or turn it off: "
    "docker compose logs --no-log-prefix, journalctl -o cat, kubectl logs without --prefix",
    "list of clients": "one client: which of them it is depends on the proxies; log $remote_addr with NGINX's "
    "set_real_ip_from, %a with Apache's mod_remoteip",
    "JSON": "lines of text; convert the two fields to epoch_millis,ip, for example with jq",
    "two accesses": "one access in a line: the server was stopped while it wrote the first one; split the line",
    "carriage return": "lines that end in a line feed: tr '\\r' '\\n' < FILE | python -m labs count -",
    "line too long": "lines of at most 65,536 bytes",
    "shortened while it was read": "a log that nobody empties meanwhile: count a copy, or one that was rotated",
    "truncated gzip": "a gzip with its end; copy the file again",
    "corrupt gzip": "a gzip without damage; copy the file again",
    "UTF-16 text": "UTF-8: iconv -f UTF-16 -t UTF-8 FILE | python -m labs count -",
    "UTF-32 text": "UTF-8: iconv -f UTF-32 -t UTF-8 FILE | python -m labs count -",
    "zip archive": "plain text or gzip: unzip -p FILE | python -m labs count -",
    "7z archive": "plain text or gzip: 7z x -so FILE | python -m labs count -",
    "tar archive": "plain text or gzip: tar -xOf FILE | python -m labs count -",
    "bzip2": "plain text or gzip: bzcat FILE | python -m labs count -",
    "xz": "plain text or gzip: xzcat FILE | python -m labs count -",
    "zstd": "plain text or gzip: zstdcat FILE | python -m labs count -",
    "lz4": "plain text or gzip: lz4cat FILE | python -m labs count -",
    "compress": "plain text or gzip: zcat FILE | python -m labs count -",
    "gzip in a gzip": "a gzip of text: zcat FILE | python -m labs count -",
}


class BadLine(ValueError):
    """A line that is not an access; `reason` is a short, stable string to count by."""

    def __init__(self, reason: str, line: bytes = b""):
        super().__init__(f"{reason}: {printable(line)}" if line else reason)
        self.reason = reason
        self.line = line


class NotALog(ValueError):
    """No line of a file, or of all files, is an access."""


class Example(NamedTuple):
    file: str
    line_number: int  # from 1
    text: str  # printable


@dataclass
class FileReport:
    """The counts of one file's lines; and an example: the first bad line that has text, or else the first bad line."""

    file: str  # printable
    lines: int = 0
    good: int = 0
    reason: str = ""
    example: Example | None = None

    @property
    def complaint(self) -> str:
        """What is wrong if the file has lines and none is an access; otherwise an empty string."""
        if self.good or not self.lines or not self.example:
            return ""
        shown = f":\n    {self.example.text}\n" if self.example.text else ", "
        return (
            f"NOT ONE of {self.lines:,} lines was understood as an access. For example, line "
            f"{self.example.line_number:,} of {self.file} ({self.reason}){shown}expected "
            f"{WANTED.get(self.reason, KNOWN_FORMATS)}"
        )


@dataclass
class LogReport:
    """The counts of all lines: `lines == good + bad_total` at every moment."""

    lines: int = 0
    good: int = 0
    bad: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[Example]] = field(default_factory=dict)
    files: list[FileReport] = field(default_factory=list, compare=False)

    @property
    def bad_total(self) -> int:
        return self.bad.total()

    @property
    def complaint(self) -> str:
        """What is wrong if no line is an access, of one file or of all; otherwise an empty string."""
        if not self.lines:
            names = ", ".join(each.file for each in self.files) or "no file"
            return f"there is NOT ONE line in {names}; expected {KNOWN_FORMATS}"
        return "\n".join(each.complaint for each in self.files if each.complaint)

    def insist(self) -> None:
        """Raise NotALog if there is a complaint."""
        if self.complaint:
            raise NotALog(self.complaint)

    def begin(self, file: str) -> None:
        """Count the following lines for this file, whose name must be printable."""
        self.files.append(FileReport(file))

    def accept(self, lines: int) -> None:
        self.lines += lines
        self.good += lines
        self.files[-1].lines += lines
        self.files[-1].good += lines

    def reject(self, reason: str, line_number: int, line: bytes) -> None:
        file = self.files[-1]
        self.lines += 1
        self.bad[reason] += 1
        file.lines += 1
        example = Example(file.file, line_number, printable(line))
        examples = self.examples.setdefault(reason, [])
        if len(examples) < EXAMPLES_PER_REASON:
            examples.append(example)
        if not file.example or (example.text and not file.example.text):
            file.reason, file.example = reason, example

    def as_dict(self) -> dict:
        """Return plain values for JSON; `bad` is the total."""
        examples = {reason: [e._asdict() for e in found] for reason, found in self.examples.items()}
        return {
            "lines": self.lines,
            "good": self.good,
            "bad": self.bad_total,
            "bad_by_reason": dict(self.bad.most_common()),
            "bad_examples": examples,
            "files": [{"file": each.file, "lines": each.lines, "good": each.good} for each in self.files],
        }

    @property
    def summary(self) -> str:
        """How many lines were good and how many bad, by reason, and the first examples; without `complaint`."""
        text = [f"lines: {self.lines:,} ({self.good:,} good, {self.bad_total:,} bad)"]
        for reason, count in self.bad.most_common():
            text.append(f"  {reason}: {count:,}" + (f" (expected {WANTED[reason]})" if reason in WANTED else ""))
            text += [f"    {e.file}:{e.line_number}: {e.text}" for e in self.examples[reason]]
        text += [f"{each.file}: no lines" for each in self.files if self.lines and not each.lines]
        return "\n".join(text)

    def __str__(self) -> str:
        return "\n".join(filter(None, [self.summary, self.complaint]))


def printable(line: bytes) -> str:
    """Return the first 80 characters of a line in ASCII, other bytes and control codes escaped."""
    return line[:EXAMPLE_LENGTH].decode("latin-1").encode("unicode_escape").decode("ascii")[:EXAMPLE_LENGTH]


def printable_name(name: str | os.PathLike[str]) -> str:
    """Return the name of a file; characters that a terminal would obey or cannot show are escaped."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in os.fsdecode(name))
