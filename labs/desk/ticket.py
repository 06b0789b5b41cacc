"""The exit ticket: three questions at a lesson's end that carry what it taught to a strange situation."""

from __future__ import annotations

from functools import partial
from typing import Any

from labs.desk.course import Option, Question, find_lesson
from labs.desk.notes import TICKET, notes_of
from labs.desk.question_widget import QuestionWidget, as_text, mimebundle


class ExitTicket:
    """The questions of one lesson, each marked as soon as it is answered, and as often as one likes."""

    def __init__(self, lesson: str):
        self.lesson, self.questions = lesson, find_lesson(lesson).ticket
        self._notes = notes_of()
        self._widgets = [
            QuestionWidget(each.question, each.options, partial(self._marked, number))
            for number, each in enumerate(self.questions)
        ]
        for widget, question in zip(self._widgets, self.questions, strict=True):
            for note in self._notes.of(TICKET, lesson=lesson, question=question.question)[-1:]:
                widget.choose(note["said"])
                widget.say(words_for(question, note["said"]))

    def answer(self, question: int, option: int) -> str:
        """Answer without buttons: both numbers count from 1. Returns what is said to it. Raises ValueError."""
        if not 1 <= question <= len(self.questions):
            raise ValueError(f"there are the questions 1 to {len(self.questions)}, and no {question}")
        asked = self.questions[question - 1]
        if not 1 <= option <= len(asked.options):
            raise ValueError(f"question {question} has the options 1 to {len(asked.options)}, and no {option}")
        said = asked.options[option - 1]
        self._widgets[question - 1].choose(said)
        return self._marked(question - 1, said)

    def _marked(self, number: int, said: Option) -> str:
        question = self.questions[number]
        right, words = said == question.answer, words_for(question, said)
        self._notes.add(TICKET, lesson=self.lesson, question=question.question, said=said, right=right)
        self._widgets[number].say(words)
        return words

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return mimebundle(self._widgets, str(self))

    def __str__(self) -> str:
        asked = (
            f"{number}. {as_text(each.question, each.options)}" for number, each in enumerate(self.questions, start=1)
        )
        return "Exit ticket\n\n" + "\n\n".join(asked)

    __repr__ = __str__


def words_for(question: Question, said: Option) -> str:
    """Return what is said to an answer."""
    return "Right." if said == question.answer else f"Not so. {question.reply_to(said)}"


def exit_ticket(lesson: str) -> ExitTicket:
    """Return the exit ticket of a lesson, by its number such as "02". Raises CourseError."""
    return ExitTicket(lesson)
