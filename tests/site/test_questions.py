"""A published lesson answers a question as the desk does, whatever the answer."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

import pytest

from labs.desk.course import load_lessons
from labs.desk.progress import NoNotes
from labs.desk.questions import ExitTicket, Prediction
from labs.site.render import ask_in_browser

each_lesson = pytest.mark.parametrize("lesson", load_lessons(), ids=lambda lesson: lesson.number)


def published(*sources: str) -> list[dict[str, str]]:
    """Return what a page says to each answer, for each of its questions that says something."""
    page: list[dict[str, Any]] = [{"cell_type": "code", "source": [source], "outputs": []} for source in sources]
    ask_in_browser(page)
    html = "".join(output["data"]["text/html"] for cell in page for output in cell["outputs"])
    said = (json.loads(unescape(each)) for each in re.findall(r'data-said="([^"]*)"', html))
    return [each for each in said if each]


@each_lesson
def test_predictions_are_answered_as_on_the_desk(lesson, capsys):
    for question in lesson.predictions:
        if not question.options:
            continue
        [said] = published(f"asked = predict({question.question!r}, [])", "asked.compare(found)")
        assert said.keys() == {str(option) for option in question.options}
        for option in question.options:
            asked = Prediction(question.question, question.options, lesson.number, question, NoNotes())
            asked.say(option).compare(question.answer)
            assert said[str(option)] + "\n" == capsys.readouterr().out


@each_lesson
def test_exit_tickets_are_marked_as_on_the_desk(lesson, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ticket = ExitTicket(lesson.number)
    on_the_page = published(f"exit_ticket({lesson.number!r})")
    assert len(on_the_page) == len(ticket.questions) > 0
    for number, (question, said) in enumerate(zip(ticket.questions, on_the_page, strict=True), start=1):
        for choice, option in enumerate(question.options, start=1):
            assert said[str(option)] == ticket.answer(number, choice)
