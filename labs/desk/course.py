"""The course as data: title, minutes, claim, predictions, exit ticket and changes to try of each lesson.

Each lesson has a file `lessons/NN.toml`. It also holds the replies to wrong answers: in the lesson itself a student
would read them before the run. The notebooks for practice only have predictions, in `lessons/practice.toml`.

`reply_to_prediction` and `reply_to_ticket` make the replies, for the desk and for the site.
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
CORE = "core_90"  # the number of the lesson for a class of 90 minutes

Option = str | int | float | bool


class CourseError(ValueError):
    """A lesson's data file is wrong."""


@dataclass(frozen=True)
class Question:
    """A question with its answer. `options` is empty if the answer may be any number.

    `replies` maps the text of a wrong option to the belief behind it, and to what refutes that belief.
    """

    question: str
    answer: Option
    options: tuple[Option, ...] = ()
    replies: dict[str, str] = field(default_factory=dict)

    def reply_to(self, said: Option) -> str:
        """Return the reply to a wrong answer, empty if there is none."""
        return self.replies.get(str(said), "")


def reply_to_prediction(said: Option, found: Option, question: Question | None = None) -> str:
    """Return the reply to a prediction: `said` is what the student predicted, `found` what the run has shown."""
    if said == found:
        return f"{found}. You said so."
    reply = question.reply_to(said) if question else ""
    return f"{found}. You said {said}{': ' + reply if reply else '.'}"


def reply_to_ticket(question: Question, said: Option) -> str:
    """Return the reply to an answer to a question of the exit ticket."""
    return "Right." if said == question.answer else f"Incorrect. {question.reply_to(said)}"


@dataclass(frozen=True)
class Change:
    """What "Change this and rerun" asks for: replace `replace` by `by` in the cell that contains `cell`.

    After the change the Python expression `expect` is true in the kernel.
    """

    cell: str
    replace: str
    by: str
    expect: str


@dataclass(frozen=True)
class Lesson:
    """One lesson. `minutes` are for a class that predicts and discusses.

    `screen` is the question to project: it rephrases prediction number `on_screen`, counted from 1.
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
    """Return the numbered lessons in their order. Raises CourseError."""
    return [_load(path) for path in sorted(directory.glob("[0-9][0-9].toml"))]


@functools.cache
def load_core(directory: Path = LESSONS) -> Lesson:
    """Return the lesson for a class of 90 minutes, which stands for several of the others. Raises CourseError."""
    return _load(directory / f"{CORE}.toml")


def all_lessons() -> list[Lesson]:
    """Return the numbered lessons, and that for a class of 90 minutes. Raises CourseError."""
    return [*load_lessons(), load_core()]


def find_lesson(number: str) -> Lesson:
    """Return a lesson by its number, such as "02", or `CORE`. Raises CourseError."""
    for lesson in all_lessons():
        if lesson.number == number:
            return lesson
    raise CourseError(f"there is no lesson {number!r}; there are: {', '.join(each.number for each in all_lessons())}")


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
    """Return the lesson's number and the prediction that has this question; ("", None) if the course has none.

    For a notebook for practice the number is `PRACTICE`.
    """
    asked = {lesson.number: lesson.predictions for lesson in all_lessons()} | {PRACTICE: load_practice()}
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
        yield f"on_screen is {lesson.on_screen}; the lesson has predictions 1 to {len(lesson.predictions)}"
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
