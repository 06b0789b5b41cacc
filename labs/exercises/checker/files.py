"""The directory that a student's code writes files in: real files, and a place to crash in the middle of each.

A file that is being written is there with what has been written so far, for every reader. A rename is one step.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from labs.exercises.checker.crash_points import CrashPoints


class ExerciseFiles:
    """A directory. Names are relative to it, such as "batch-7.jsonl" or "manifest/7"."""

    def __init__(self, points: CrashPoints, directory: str | Path):
        self._points, self._directory = points, Path(directory)

    def write(self, name: str, lines: Iterable[str]) -> None:
        """Write the lines to a file, new or instead of what it holds. It takes time: a crash leaves a part of it."""
        if isinstance(lines, str):
            raise TypeError(f"files.write takes a list of lines, and not the text {lines!r:.40}")
        file, lines = self._file(name), list(lines)
        text = "".join(f"{line}\n" for line in lines)

        def write() -> None:
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("w", encoding="utf-8") as content:
                content.write(text[: len(text) // 2])
                content.flush()
                self._points.journal.write("call", f"files.write({name}): half of it is written")
                self._points.reach("midway files.write")
                content.write(text[len(text) // 2 :])

        self._points.call("files.write", write, f"files.write({name}, {_lines(len(lines))})")

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, in one step; what had that name before is gone. Raises FileNotFoundError."""
        source, target = self._file(old), self._file(new)
        target.parent.mkdir(parents=True, exist_ok=True)
        self._points.call("files.rename", lambda: os.replace(source, target), f"files.rename({old}, {new})")

    def exists(self, name: str) -> bool:
        """Tell whether there is a file of that name, whole or not."""
        file = self._file(name)
        return self._points.call("files.exists", file.is_file, f"files.exists({name})")

    def read(self, name: str) -> list[str]:
        """Return the lines of a file. Raises FileNotFoundError."""
        file = self._file(name)
        return self._points.call(
            "files.read", lambda: lines_of(file), f"files.read({name})", lambda lines: _lines(len(lines))
        )

    def names(self) -> list[str]:
        """Return the names of all files."""
        found = (file for file in self._directory.rglob("*") if file.is_file())
        return sorted(str(file.relative_to(self._directory)) for file in found)

    def _file(self, name: str) -> Path:
        file = (self._directory / name).resolve()
        if not file.is_relative_to(self._directory.resolve()) or file == self._directory.resolve():
            raise ValueError(f"{name!r} is no name in this directory")
        return file


def lines_of(file: Path) -> list[str]:
    """Return the lines of a file, the last one too if it is not whole."""
    return file.read_text(encoding="utf-8").splitlines()


def _lines(number: int) -> str:
    return "1 line" if number == 1 else f"{number} lines"
