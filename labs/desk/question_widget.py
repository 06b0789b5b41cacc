"""A question with buttons where there are widgets, and as plain text where there are none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import ipywidgets

from labs.desk.course import Option


class QuestionWidget:
    """A question, its options as buttons (or a field for a number), and a line for what is said about the answer.

    `on_answer(option)` is called with each answer that a person gives. The buttons are ordinary ones: Tab and the
    space bar reach and press them.
    """

    def __init__(self, question: str, options: Sequence[Option], on_answer: Callable[[Option], object]):
        self.question, self.options, self._on_answer = question, tuple(options), on_answer
        self._status = ipywidgets.HTML()
        self._choice = self._buttons() if self.options else self._field()
        self._quiet = False
        title = ipywidgets.HTML(f"<b>{escape(question)}</b>")
        self.widget = ipywidgets.VBox([title, self._choice, self._status])

    def _buttons(self) -> Any:
        choice = ipywidgets.ToggleButtons(
            options=[(str(option), option) for option in self.options],
            value=None,
            style={"button_width": "initial"},
            tooltips=[f"My answer: {option}" for option in self.options],
        )
        choice.observe(lambda change: self._answered(change["new"]), names="value")
        return choice

    def _field(self) -> Any:
        field = ipywidgets.Text(placeholder="a number, then Enter", continuous_update=False, layout={"width": "16em"})

        def typed(change: dict[str, Any]) -> None:
            text = change["new"].strip().replace("\N{MINUS SIGN}", "-")
            try:
                number = float(text) if "." in text else int(text)
            except ValueError:
                if text:
                    self.say(f"{text!r} is not a number")
                return
            self._answered(number)

        field.observe(typed, names="value")
        return field

    def _answered(self, option: Option | None) -> None:
        if option is not None and not self._quiet:
            self._on_answer(option)

    def choose(self, option: Option) -> None:
        """Show an answer that was given before."""
        self._quiet = True
        try:
            if not self.options:
                self._choice.value = str(option)
            elif option in self.options:
                self._choice.value = option
        finally:
            self._quiet = False

    def close(self) -> None:
        """Take no more answers."""
        self._choice.disabled = True

    def say(self, text: str) -> None:
        """Show a line below the buttons."""
        self._status.value = escape(text)


def mimebundle(widgets: Sequence[QuestionWidget], text: str) -> dict[str, Any]:
    """Return what Jupyter shows: the widgets where it can, else the questions as text."""
    box = widgets[0].widget if len(widgets) == 1 else ipywidgets.VBox([each.widget for each in widgets])
    bundle = box._repr_mimebundle_() or {}
    return {**bundle, "text/plain": text, "text/html": f"<pre>{escape(text)}</pre>"}


def as_text(question: str, options: Sequence[Option]) -> str:
    """Return a question and its options as lines of text."""
    return "\n".join([question, *(f"  ( ) {option}" for option in options or ("a number",))])
