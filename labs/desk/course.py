"""The course as data: of each lesson its title, minutes, claim, predictions, exit ticket and changes to try.

Read from `lessons/NN.toml`, one file a lesson. What a prediction's wrong answers are answered with stands there, and
not in the lesson, where a student would read it before the run. A notebook for practice has predictions and nothing
else; they are in `lessons/practice.toml`.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LESSONS = Path(__file__).parent / "lessons"
PRACTICE = "practice"

Option = str | int | float | bool


class CourseError(ValueError):
    """A lesson's data file is not what it should be."""


@dataclass(frozen=True)
class Question:
    """A question with its answer. `options` is empty where any number may be said.

    `replies` says for a wrong option, keyed by its text, what one who chooses it believes, and what refutes it.
    """

    question: str
    answer: Option
    options: tuple[Option, ...] = ()
    replies: dict[str, str] = field(default_factory=dict)

    def reply_to(self, said: Option) -> str:
        """Return what a wrong answer is answered with, or nothing where nobody foresaw it."""
        return self.replies.get(str(said), "")


@dataclass(frozen=True)
class Change:
    """What "Change this and rerun" asks for: in the cell that contains `cell`, `replace` becomes `by`.

    Afterwards `expect`, a Python expression, is true in the kernel.
    """

    cell: str
    replace: str
    by: str
    expect: str


@dataclass(frozen=True)
class Lesson:
    """One lesson. `minutes` are for a class that predicts and discusses.

    `screen` is the question to project: in words of its own, the prediction with the number `on_screen`, from 1 on.
    """

    number: str
    title: str
    minutes: int
    claim: str
    screen: str
    on_screen: int = 1
    predictions: tuple[Question, ...] = ()
    ticket: tuple[Question, ...] = ()
    changes: tuple[Change, ...] = ()


@functools.cache
def load_lessons(directory: Path = LESSONS) -> list[Lesson]:
    """Return the lessons in their order. Raises CourseError."""
    return [_load(path) for path in sorted(directory.glob("[0-9][0-9].toml"))]


def find_lesson(number: str) -> Lesson:
    """Return a lesson by its number, such as "02". Raises CourseError."""
    for lesson in load_lessons():
        if lesson.number == number:
            return lesson
    raise CourseError(f"there is no lesson {number!r}; there are: {', '.join(each.number for each in load_lessons())}")


@functools.cache
def load_practice(directory: Path = LESSONS) -> tuple[Question, ...]:
    """Return the predictions of the notebooks for practice. Raises CourseError."""
    file = directory / f"{PRACTICE}.toml"
    try:
        predictions = tuple(map(_question, tomllib.loads(file.read_text())["predictions"]))
    except (tomllib.TOMLDecodeError, TypeError, KeyError) as error:
        raise CourseError(f"{file.name}: {error}") from error
    for fault in _faults_of(predictions):
        raise CourseError(f"{file.name}: {fault}")
    return predictions


def find_prediction(question: str) -> tuple[str, Question | None]:
    """Return (lesson's number, the prediction) of a question; ("", None) for one that is not of the course.

    For a notebook for practice the number is `PRACTICE`.
    """
    asked = {lesson.number: lesson.predictions for lesson in load_lessons()} | {PRACTICE: load_practice()}
    for number, predictions in asked.items():
        for prediction in predictions:
            if prediction.question == question:
                return number, prediction
    return "", None


def _load(path: Path) -> Lesson:
    try:
        data: dict[str, Any] = tomllib.loads(path.read_text())
        data["predictions"] = tuple(map(_question, data.get("predictions", [])))
        data["ticket"] = tuple(map(_question, data.get("ticket", [])))
        data["changes"] = tuple(Change(**each) for each in data.get("changes", []))
        lesson = Lesson(number=path.stem, **data)
    except (tomllib.TOMLDecodeError, TypeError, KeyError) as error:
        raise CourseError(f"{path.name}: {error}") from error
    for fault in _faults(lesson):
        raise CourseError(f"{path.name}: {fault}")
    return lesson


def _question(data: dict[str, Any]) -> Question:
    return Question(**{**data, "question": data["question"].strip(), "options": tuple(data.get("options", ()))})


def _faults(lesson: Lesson) -> Iterator[str]:
    if not 1 <= lesson.on_screen <= max(1, len(lesson.predictions)):
        yield f"there is no prediction {lesson.on_screen} to be put on the screen, of {len(lesson.predictions)}"
    yield from _faults_of((*lesson.predictions, *lesson.ticket))


def _faults_of(questions: Iterable[Question]) -> Iterator[str]:
    for each in questions:
        if each.options and each.answer not in each.options:
            yield f"the answer {each.answer!r} is none of the options of {each.question!r}"
        wrong = {str(option) for option in each.options if option != each.answer}
        if each.options and wrong != each.replies.keys():
            yield f"the wrong options of {each.question!r} are {sorted(wrong)}, its replies {sorted(each.replies)}"
        if str(each.answer) in each.replies:
            yield f"the right answer of {each.question!r} has a reply meant for a wrong one"
