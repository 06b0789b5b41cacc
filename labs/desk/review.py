"""Two questions from older lessons, for the beginning of a lesson: `review("05")`.

They come from the exit tickets, which can be understood without their lesson. The student's notes decide which: first
questions that were answered wrongly, then questions that were not asked again yet, of the lessons with the most wrong
predictions.

Guarantee: when one of the two is answered, a cell that is run again asks the same two. Without notes the draw is always
the same. `labs progress` does not count the answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from labs.desk.course import CourseError, Lesson, Option, Question, find_lesson, load_lessons, reply_to_ticket
from labs.desk.notes import COMPARED, REVIEWED, TICKET, first_notes, notes_of
from labs.desk.prediction import Quiz

Note = dict[str, Any]


def draw_two(older: Sequence[Lesson], notes: Sequence[Note] = ()) -> list[tuple[Lesson, Question]]:
    """Return two questions, each with its lesson, of two different lessons if there are two."""
    last = {each.get("question"): each for each in notes if each.get("kind") in (TICKET, REVIEWED)}
    missed = {question for question, note in last.items() if not note.get("right")}
    asked_again = Counter(each.get("question") for each in notes if each.get("kind") == REVIEWED)

    def urgency(place: int, lesson: Lesson, question: Question) -> tuple[bool, int, int, int]:
        asked = question.question
        return asked not in missed, asked_again[asked], -wrong_predictions(lesson, notes), place

    candidates = [(lesson, question) for lesson in _spaced(older) for question in _rotated(lesson, len(older))]
    ranked = [each for _, each in sorted(enumerate(candidates), key=lambda item: urgency(item[0], *item[1]))]
    others = [each for each in ranked[1:] if each[0] != ranked[0][0]]
    return [*ranked[:1], *others, *ranked[1:]][:2]


def wrong_predictions(lesson: Lesson, notes: Sequence[Note]) -> int:
    """Return how many predictions of the lesson were wrong when they were first compared."""
    compared = first_notes(notes, COMPARED, {each.question for each in lesson.predictions})
    return sum(note.get("said") != note.get("found") for note in compared.values())


def _spaced(older: Sequence[Lesson]) -> list[Lesson]:
    """Return the lessons in the order of a draw without notes: the last one, one from the middle, then the others."""
    last, *rest = reversed(older)
    middle = rest[len(rest) // 2 :][:1]
    return [last, *middle, *(each for each in rest if each not in middle)]


def _rotated(lesson: Lesson, by: int) -> tuple[Question, ...]:
    """Return the questions of the lesson's exit ticket, beginning with another one in each later lesson."""
    begin = by % max(1, len(lesson.ticket))
    return lesson.ticket[begin:] + lesson.ticket[:begin]


def _is_answer(note: Note, lesson: str) -> bool:
    return note.get("kind") == REVIEWED and note.get("lesson") == lesson


class Review(Quiz):
    """Two questions from lessons before this one."""

    def __init__(self, lesson: str):
        find_lesson(lesson)
        older = list(takewhile(lambda each: each.number != lesson, load_lessons()))
        if not older:
            raise CourseError(f"{lesson} is the first lesson: there is none before it to ask about")
        drawn = draw_two(older, list(takewhile(lambda note: not _is_answer(note, lesson), notes_of())))
        self._sources = {question.question: source for source, question in drawn}
        super().__init__("From before", lesson, [question for _, question in drawn], REVIEWED)

    def reply_to(self, question: Question, said: Option) -> str:
        """Return the reply to an answer, and where the question is from."""
        source = self._sources[question.question]
        return f"{reply_to_ticket(question, said)} (Lesson {source.number}, {source.title}.)"


def review(lesson: str) -> Review:
    """Return two questions from the lessons before the one with this number, such as "05". Raises CourseError."""
    return Review(lesson)
