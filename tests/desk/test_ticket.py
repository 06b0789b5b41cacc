"""The exit ticket: marked as soon as it is answered."""

from __future__ import annotations

import pytest

from labs.desk import questions
from labs.desk.course import CourseError, Lesson, Question
from labs.desk.progress import notes_of
from labs.desk.questions import exit_ticket

ASKED = (
    Question(
        "offsets/ has 0 to 4, commits/ 0 to 3. Repeated?",
        "batch 4",
        ("batch 3", "batch 4"),
        {"batch 3": "It is noted."},
    ),
    Question("Which?", "b", ("a", "b"), {"a": "No."}),
)


@pytest.fixture(autouse=True)
def lesson(monkeypatch):
    made = Lesson("02", "Title", 45, "Claim.", "Screen?", ticket=ASKED)
    monkeypatch.setattr(questions, "find_lesson", lambda number: made)


def test_right_and_wrong_answers_are_told_apart_at_once(desk):
    asked = exit_ticket("02")
    form = asked._widgets[0].widget
    form.said = "batch 3"
    assert (form.reply, form.right) == ("Incorrect. It is noted.", "false")
    form.said = "batch 4"
    assert (form.reply, form.right) == ("Right.", "true")
    assert [note["right"] for note in notes_of().of("ticket", lesson="02")] == [False, True]
    assert exit_ticket("02")._widgets[0].widget.said == "batch 4", "kept over a restart"


def test_it_can_be_answered_without_buttons():
    assert exit_ticket("02").answer(1, 2) == "Right."
    assert exit_ticket("02").answer(2, 1) == "Incorrect. No."


@pytest.mark.parametrize(("question", "option"), [(0, 1), (3, 1), (1, 0), (1, 3)])
def test_what_is_not_there_cannot_be_answered(question, option):
    with pytest.raises(ValueError, match=r"there is no question|has no option"):
        exit_ticket("02").answer(question, option)


def test_as_text_it_has_all_questions_and_options():
    text = exit_ticket("02")._repr_mimebundle_()["text/plain"]
    assert text == str(exit_ticket("02"))
    for each in ASKED:
        assert each.question in text
        assert all(f"( ) {option}" in text for option in each.options)


def test_a_lesson_that_is_none_is_named(monkeypatch):
    monkeypatch.undo()
    with pytest.raises(CourseError, match="there is no lesson '99'"):
        exit_ticket("99")
