"""How far a student has come: predictions, exercises and exit tickets, out of the notes on the desk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from labs.desk.course import Lesson, load_lessons
from labs.desk.notes import CHECKED, COMPARED, PREDICTED, TICKET, Notes
from labs.exercises.catalogue import EXERCISES


@dataclass(frozen=True)
class LessonProgress:
    """Of one lesson: how many questions it has, how many were answered, and how many rightly at the first try."""

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
    """Count what the notes say."""
    known = list(notes)
    exercises = [_exercise(name, known) for name in EXERCISES]
    return Progress([_lesson(lesson, known) for lesson in load_lessons()], exercises, notes.broken)


def _lesson(lesson: Lesson, notes: list[dict[str, Any]]) -> LessonProgress:
    asked = {each.question for each in lesson.predictions}
    predicted = {note.get("question") for note in notes if note.get("kind") == PREDICTED} & asked
    first = _first(notes, COMPARED, asked)
    answers = _first(notes, TICKET, {each.question for each in lesson.ticket})
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


def _first(notes: list[dict[str, Any]], kind: str, asked: set[str]) -> dict[str, dict[str, Any]]:
    """Return the first note of a kind for each of the questions."""
    found: dict[str, dict[str, Any]] = {}
    for note in notes:
        if note.get("kind") == kind and note.get("question") in asked:
            found.setdefault(note["question"], note)
    return found


def _exercise(name: str, notes: list[dict[str, Any]]) -> ExerciseProgress:
    verdicts = [note.get("verdict") for note in notes if note.get("kind") == CHECKED and note.get("exercise") == name]
    return ExerciseProgress(name, len(verdicts), "passed" in verdicts)
