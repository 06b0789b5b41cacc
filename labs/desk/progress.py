"""A student's progress: predictions, checks and answers, in a file on the desk. Nothing leaves the machine.

`.progress.jsonl` has one JSON object in each line; unreadable lines are left out, and counted in `broken`. Without a
desk (a lesson opened in `notebooks/`, a test, a published page) nothing is kept.

`progress_in` works out from the notes how far a student has come. It leaves out the answers to questions from older
lessons, which are asked once more at the beginning of a lesson (`review`).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from labs.desk.course import Lesson, all_lessons
from labs.exercises.checker.check import EXERCISES

MANIFEST = ".desk.json"  # a directory with this file is a desk
NOTES = ".progress.jsonl"

PREDICTED, COMPARED, CHECKED, TICKET, REVIEWED = "predicted", "compared", "checked", "ticket", "reviewed"


def _plain(value: Any) -> Any:
    """Return a number of numpy's as a number of Python's, and anything else as text."""
    return value.item() if hasattr(value, "item") else str(value)


@dataclass
class Notes:
    """The notes in one file."""

    path: Path
    broken: int = 0
    kept = True

    def add(self, kind: str, **values: Any) -> None:
        """Append one note. If the disk is full or read-only, only the note is lost."""
        note = {"kind": kind, "at": datetime.now(UTC).isoformat(timespec="seconds"), **values}
        line = json.dumps(note, default=_plain)
        with contextlib.suppress(OSError), self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def of(self, kind: str, **values: Any) -> list[dict[str, Any]]:
        """Return the notes of a kind that have these values, oldest first."""
        return [note for note in self if note.get("kind") == kind and values.items() <= note.items()]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.broken = 0
        try:
            lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return
        for line in lines:
            try:
                note = json.loads(line)
            except ValueError:
                note = None
            if isinstance(note, dict):
                yield note
            else:
                self.broken += 1


class NoNotes(Notes):
    """Keeps nothing: there is no desk."""

    kept = False

    def __init__(self) -> None:
        super().__init__(Path(NOTES))

    def add(self, kind: str, **values: Any) -> None:
        """Keep nothing."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(())


def notes_of(directory: Path | None = None) -> Notes:
    """Return the notes of the desk that `directory` (default: the working directory) is or is in."""
    here = (directory or Path.cwd()).resolve()
    for place in (here, here.parent):
        if (place / MANIFEST).exists():
            return Notes(place / NOTES)
    return NoNotes()


@dataclass(frozen=True)
class LessonProgress:
    """Of one lesson: how many questions it has, how many were answered, and how many correctly at the first try."""

    number: str
    title: str
    predictions: int
    predicted: int
    predicted_rightly: int
    tickets: int
    answered: int
    answered_rightly: int


@dataclass(frozen=True)
class ExerciseProgress:
    """Of one exercise: how often it was judged, and whether it ever passed."""

    name: str
    attempts: int
    passed: bool


@dataclass(frozen=True)
class Progress:
    lessons: list[LessonProgress]
    exercises: list[ExerciseProgress]
    broken: int  # notes that could not be read

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "lessons": [vars(each) for each in self.lessons],
            "exercises": [vars(each) for each in self.exercises],
            "broken": self.broken,
        }


def progress_in(notes: Notes) -> Progress:
    """Return the progress that the notes show."""
    known = list(notes)
    exercises = [_exercise(name, known) for name in EXERCISES]
    return Progress([_lesson(lesson, known) for lesson in all_lessons()], exercises, notes.broken)


def _lesson(lesson: Lesson, notes: list[dict[str, Any]]) -> LessonProgress:
    asked = {each.question for each in lesson.predictions}
    predicted = {note.get("question") for note in notes if note.get("kind") == PREDICTED} & asked
    first = first_notes(notes, COMPARED, asked)
    answers = first_notes(notes, TICKET, {each.question for each in lesson.ticket})
    return LessonProgress(
        lesson.number,
        lesson.title,
        len(lesson.predictions),
        len(predicted),
        sum(note.get("said") == note.get("found") for note in first.values()),
        len(lesson.ticket),
        len(answers),
        sum(bool(note.get("right")) for note in answers.values()),
    )


def first_notes(notes: Iterable[dict[str, Any]], kind: str, asked: set[str]) -> dict[str, dict[str, Any]]:
    """Return the first note of a kind for each question in `asked`."""
    found: dict[str, dict[str, Any]] = {}
    for note in notes:
        if note.get("kind") == kind and note.get("question") in asked:
            found.setdefault(note["question"], note)
    return found


def _exercise(name: str, notes: list[dict[str, Any]]) -> ExerciseProgress:
    verdicts = [note.get("verdict") for note in notes if note.get("kind") == CHECKED and note.get("exercise") == name]
    return ExerciseProgress(name, len(verdicts), "passed" in verdicts)
