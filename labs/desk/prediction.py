"""Predictions that count: noted before the run, compared after it, and a wrong one is answered.

    twice = predict("How many of the 48 results will be there twice?", [0, 8, 24, 48])
    ...
    twice.compare(audit.duplicated)

Guarantee: nothing waits for an answer, so a lesson runs to its end where nobody sits (nbval, nbconvert, "run all").
On a desk an answer is kept over a restart of the kernel. Where it stops: who wants to cheat, can.
"""

from __future__ import annotations

from collections.abc import Sequence

from IPython.display import display

from labs.desk.course import Option, Question, find_prediction
from labs.desk.notes import COMPARED, PREDICTED, Notes, notes_of
from labs.desk.question_widget import QuestionWidget, as_text, mimebundle


class Prediction:
    """One question, and what was said to it: `said` is None until somebody answers."""

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
        """Print what came out beside what was said, and the answer to a wrong one."""
        if self.said is None:
            print(f"{found}. (You made no prediction.)")
            return
        if self.said == found:
            words = f"{found}. You said so."
        else:
            reply = self._known.reply_to(self.said) if self._known else ""
            words = f"{found}. You said {self.said}{': ' + reply if reply else '.'}"
        self._notes.add(COMPARED, lesson=self._lesson, question=self.question, said=self.said, found=found)
        self._widget.close()
        self._widget.say(words)
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
    """Ask, and go on at once. `options` are buttons; `int` is a field for any number. Raises ValueError."""
    choices: Sequence[Option] = () if isinstance(options, type) else list(options)
    if len(set(map(str, choices))) != len(choices) or len(choices) == 1:
        raise ValueError(f"options must be two or more, and differ: {list(choices)}")
    lesson, known = find_prediction(question)
    prediction = Prediction(question, choices, lesson, known, notes_of())
    prediction.show()
    return prediction
