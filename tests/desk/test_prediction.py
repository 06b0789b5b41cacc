"""Predictions: noted, compared, answered; and nothing waits for one."""

from __future__ import annotations

import json
from typing import Any

import numpy
import pytest

from labs.desk.course import Question
from labs.desk.progress import NOTES, NoNotes, Notes, notes_of
from labs.desk.questions import Prediction, predict

QUESTION = "How many of the 48?"
KNOWN = Question(QUESTION, 24, (0, 8, 24), {"0": "Kafka does not compare.", "8": "There is no memory yet."})


def prediction(notes: Notes) -> Prediction:
    return Prediction(QUESTION, [0, 8, 24], "02", KNOWN, notes)


def click(asked: Prediction, option) -> None:
    asked._widget.widget.said = str(option)


def test_without_an_answer_it_says_what_was_found_and_goes_on(capsys):
    prediction(NoNotes()).compare(24)
    assert capsys.readouterr().out == "24. (You made no prediction.)\n"


@pytest.mark.parametrize(
    ("said", "words"),
    [(24, "24. You said so.\n"), (8, "24. You said 8: There is no memory yet.\n")],
)
def test_a_click_is_compared_and_a_wrong_one_answered(said, words, capsys):
    asked = prediction(NoNotes())
    click(asked, said)
    asked.compare(24)
    assert capsys.readouterr().out == words
    assert asked._widget.widget.right == str(said == 24).lower()


def test_an_answer_is_kept_over_a_restart_of_the_kernel(desk):
    click(prediction(notes_of()), 8)
    again = prediction(notes_of())
    assert again.said == 8
    assert again._widget.widget.said == "8"
    assert len(notes_of().of("predicted")) == 1, "showing a kept answer is not an answer"


def test_the_last_click_before_the_run_counts(desk, capsys):
    asked = prediction(notes_of())
    click(asked, 8)
    click(asked, 24)
    asked.compare(24)
    assert "You said so" in capsys.readouterr().out
    assert [note["said"] for note in notes_of().of("compared")] == [24]
    assert asked._widget.widget.closed


def test_a_number_of_numpy_is_noted_as_a_number(desk):
    asked = prediction(notes_of())
    click(asked, 24)
    found: Any = numpy.int64(24)
    asked.compare(found)
    assert [note["found"] for note in notes_of().of("compared")] == [24]


def test_a_changed_parameter_that_finds_another_number_is_compared_with_that(capsys):
    asked = prediction(NoNotes()).say(24)
    asked.compare(16)
    assert capsys.readouterr().out == "16. You said 24.\n"


def test_where_there_is_no_desk_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    click(prediction(notes_of()), 8)
    assert list(tmp_path.iterdir()) == []


def test_exercises_lie_on_the_desk_too(desk, monkeypatch):
    (desk / "exercises").mkdir()
    monkeypatch.chdir(desk / "exercises")
    assert notes_of().path == desk / NOTES


def test_a_line_that_cannot_be_read_costs_that_line(desk):
    click(prediction(notes_of()), 8)
    with (desk / NOTES).open("a") as file:
        file.write('{"kind": "pre\n[1]\n')
    notes = notes_of()
    assert len(list(notes)) == 1
    assert notes.broken == 2


def test_a_full_disk_costs_the_note_and_not_the_lesson(desk):
    asked = prediction(notes_of())
    (desk / NOTES).mkdir()
    click(asked, 8)
    assert asked.said == 8


def test_a_number_can_be_typed_and_what_is_none_is_said_to_be_none():
    asked = Prediction("How many?", (), "", None, NoNotes())
    click(asked, "many")
    assert asked.said is None
    assert asked._widget.widget.reply == "'many' is not a number"
    click(asked, " 12 ")
    assert asked.said == 12


@pytest.mark.parametrize("options", [[1], [1, 1], ["1", 1]])
def test_options_that_cannot_be_told_apart_are_refused(options):
    with pytest.raises(ValueError, match="two or more different options"):
        predict("?", options)


def test_what_is_no_option_is_refused():
    with pytest.raises(ValueError, match="9 is none of the options: 0, 8, 24"):
        prediction(NoNotes()).say(9)


def test_where_there_are_no_widgets_the_question_is_text(capsys):
    predict("How many?", [0, 8])
    assert json.dumps(capsys.readouterr().out)  # displayed as text outside a kernel
