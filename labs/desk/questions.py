"""Questions to the student: predictions, noted before the run and compared after it; exit tickets; and reviews.

    twice = predict("How many of the 48 results will be there twice?", [0, 8, 24, 48])
    ...
    twice.compare(audit.duplicated)

Guarantee: nothing waits for an answer, so a lesson runs to its end without a student, too (nbval, "run all").
On a desk an answer survives a restart of the kernel. Limitations: a student can cheat.

A question has buttons if the frontend has widgets; otherwise it is plain text. On the site it looks the same. The exit
ticket has three questions, which apply the lesson to a new situation. `review("05")` asks two questions from older
lessons, at the beginning of a lesson.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from itertools import takewhile
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets
import traitlets
from IPython.display import display

from labs.desk.course import (
    CourseError,
    Lesson,
    Option,
    Question,
    find_lesson,
    find_prediction,
    load_lessons,
    reply_to_prediction,
    reply_to_ticket,
)
from labs.desk.progress import COMPARED, PREDICTED, REVIEWED, TICKET, Notes, first_notes, notes_of

HERE = Path(__file__).parent


class QuestionForm(anywidget.AnyWidget):
    """What the browser shows of a question. `right` is "true", "false", or empty as long as nothing is known."""

    _esm = (HERE / "question.js").read_text(encoding="utf-8")
    _css = (HERE / "question.css").read_text(encoding="utf-8")
    question = traitlets.Unicode().tag(sync=True)
    options = traitlets.List(traitlets.Unicode()).tag(sync=True)
    said = traitlets.Unicode().tag(sync=True)
    reply = traitlets.Unicode().tag(sync=True)
    right = traitlets.Unicode().tag(sync=True)
    closed = traitlets.Bool(False).tag(sync=True)


class QuestionWidget:
    """A question, its options (or a field for a number), and a line for the reply.

    `on_answer(option)` is called with each answer that a person gives. The keyboard works: Tab and the space bar.
    """

    def __init__(self, question: str, options: Sequence[Option], on_answer: Callable[[Option], object]):
        self.question, self.options, self._on_answer = question, tuple(options), on_answer
        self._quiet = False
        self.widget = QuestionForm(question=question, options=list(map(str, options)))
        self.widget.observe(lambda change: self._answered(change["new"]), names="said")

    def _answered(self, text: str) -> None:
        if self._quiet:
            return
        option = self._option(text)
        if option is not None:
            self._on_answer(option)
        elif text.strip():
            self.say(f"{text.strip()!r} is not a number")

    def _option(self, text: str) -> Option | None:
        """Return the option or the number that a text stands for."""
        if self.options:
            return next((option for option in self.options if str(option) == text), None)
        text = text.strip().replace("\N{MINUS SIGN}", "-")
        try:
            return float(text) if "." in text else int(text)
        except ValueError:
            return None

    def choose(self, option: Option) -> None:
        """Show an answer that was given before."""
        if self.options and option not in self.options:
            return
        self._quiet = True
        try:
            self.widget.said = str(option)
        finally:
            self._quiet = False

    def close(self) -> None:
        """Accept no more answers."""
        self.widget.closed = True

    def say(self, text: str, right: bool | None = None) -> None:
        """Show the reply, and whether the answer was right."""
        self.widget.right = "" if right is None else str(right).lower()
        self.widget.reply = text


def mimebundle(widgets: Sequence[QuestionWidget], text: str) -> dict[str, Any]:
    """Return what Jupyter shows: widgets if it can, else the questions as text."""
    bundle = ipywidgets.VBox([each.widget for each in widgets])._repr_mimebundle_() or {}
    return {**bundle, "text/plain": text, "text/html": f"<pre>{escape(text)}</pre>"}


def as_text(question: str, options: Sequence[Option]) -> str:
    """Return a question and its options as lines of text."""
    return "\n".join([question, *(f"  ( ) {option}" for option in options or ("a number",))])


class Prediction:
    """One question and the student's answer: `said`, which is None until there is one."""

    def __init__(self, question: str, options: Sequence[Option], lesson: str, known: Question | None, notes: Notes):
        self.question, self.options = question, tuple(options)
        self.said: Option | None = None
        self._lesson, self._known, self._notes = lesson, known, notes
        self._widget = QuestionWidget(question, options, self._noted)
        for note in notes.of(PREDICTED, question=question)[-1:]:
            self.said = note["said"]
            self._widget.choose(note["said"])
            self._widget.say(f"Kept from before: {self.said}.")

    def say(self, answer: Option) -> Prediction:
        """Answer without buttons: `predict(…).say(24)`. Raises ValueError."""
        if self.options and answer not in self.options:
            raise ValueError(f"{answer!r} is none of the options: {', '.join(map(str, self.options))}")
        self._widget.choose(answer)
        self._noted(answer)
        return self

    def compare(self, found: Option) -> None:
        """Print what was found, what the student predicted, and the reply to a wrong prediction."""
        if self.said is None:
            print(f"{found}. (You made no prediction.)")
            return
        words = reply_to_prediction(self.said, found, self._known)
        self._notes.add(COMPARED, lesson=self._lesson, question=self.question, said=self.said, found=found)
        self._widget.close()
        self._widget.say(words, right=self.said == found)
        print(words)

    def _noted(self, answer: Option) -> None:
        self.said = answer
        self._notes.add(PREDICTED, lesson=self._lesson, question=self.question, said=answer)
        self._widget.say(f"Noted: {answer}." if self._notes.kept else f"Noted until the kernel ends: {answer}.")

    def show(self) -> None:
        """Show the question."""
        display(mimebundle([self._widget], "Predict: " + as_text(self.question, self.options)), raw=True)

    def _ipython_display_(self) -> None:
        """Show nothing: `predict` has shown the question already."""

    def __repr__(self) -> str:
        return f"Prediction({self.question!r}, said={self.said!r})"


def predict(question: str, options: Sequence[Option] | type[int] = int) -> Prediction:
    """Ask, and do not wait for the answer. `options` are buttons; `int` is a field for a number. Raises ValueError."""
    choices: Sequence[Option] = () if isinstance(options, type) else list(options)
    if len(set(map(str, choices))) != len(choices) or len(choices) == 1:
        raise ValueError(f"expected two or more different options, found {list(choices)}")
    lesson, known = find_prediction(question)
    prediction = Prediction(question, choices, lesson, known, notes_of())
    prediction.show()
    return prediction


class Quiz:
    """Questions under a heading. Each is marked as soon as it is answered, and can be answered again.

    The answers are notes of the given kind, and of the lesson that asks.
    """

    def __init__(self, heading: str, lesson: str, questions: Sequence[Question], kind: str):
        self.heading, self.lesson, self.questions = heading, lesson, tuple(questions)
        self._kind, self._notes = kind, notes_of()
        self._widgets = [
            QuestionWidget(each.question, each.options, partial(self._marked, number))
            for number, each in enumerate(self.questions)
        ]
        for widget, question in zip(self._widgets, self.questions, strict=True):
            for note in self._notes.of(kind, lesson=lesson, question=question.question)[-1:]:
                widget.choose(note["said"])
                widget.say(self.reply_to(question, note["said"]), right=note["said"] == question.answer)

    def reply_to(self, question: Question, said: Option) -> str:
        """Return the reply to an answer."""
        return reply_to_ticket(question, said)

    def answer(self, question: int, option: int) -> str:
        """Answer without buttons, and return the reply: both numbers count from 1. Raises ValueError."""
        if not 1 <= question <= len(self.questions):
            raise ValueError(f"there is no question {question}; the questions are 1 to {len(self.questions)}")
        asked = self.questions[question - 1]
        if not 1 <= option <= len(asked.options):
            raise ValueError(f"question {question} has no option {option}; its options are 1 to {len(asked.options)}")
        said = asked.options[option - 1]
        self._widgets[question - 1].choose(said)
        return self._marked(question - 1, said)

    def _marked(self, number: int, said: Option) -> str:
        question = self.questions[number]
        right, words = said == question.answer, self.reply_to(question, said)
        self._notes.add(self._kind, lesson=self.lesson, question=question.question, said=said, right=right)
        self._widgets[number].say(words, right)
        return words

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return mimebundle(self._widgets, str(self))

    def __str__(self) -> str:
        asked = (
            f"{number}. {as_text(each.question, each.options)}" for number, each in enumerate(self.questions, start=1)
        )
        return f"{self.heading}\n\n" + "\n\n".join(asked)

    __repr__ = __str__


class ExitTicket(Quiz):
    """The three questions at the end of a lesson."""

    def __init__(self, lesson: str):
        super().__init__("Exit ticket", lesson, find_lesson(lesson).ticket, TICKET)


def exit_ticket(lesson: str) -> ExitTicket:
    """Return the exit ticket of a lesson, by its number such as "02". Raises CourseError."""
    return ExitTicket(lesson)


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
    """Two questions from lessons before this one.

    They come from the exit tickets, which can be understood without their lesson. The student's notes decide which:
    first questions whose last answer was wrong, then questions with the fewest answers in reviews, and among these the
    ones of lessons with the most wrong predictions. Once one of the two is answered, a cell that is run again asks the
    same two. Without notes the choice is always the same. `labs progress` does not count the answers.
    """

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
