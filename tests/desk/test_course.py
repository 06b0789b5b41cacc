"""The course's data and its lessons say the same, and bad data has a clear message."""

from __future__ import annotations

import ast
import re

import pytest

from labs.desk.course import CORE, CourseError, all_lessons, find_lesson, find_prediction, load_lessons, load_practice
from labs.desk.desk import LESSONS
from tests.lessons import cells, python_of

GOOD = """
title = "Title"
minutes = 45
claim = "Claim."
screen = "Question?"
[[predictions]]
question = "How many?"
options = [1, 2]
answer = 1
replies = {2 = "No."}
"""
each_lesson = pytest.mark.parametrize("lesson", all_lessons(), ids=lambda lesson: lesson.number)


def code_of(number: str) -> list[str]:
    [path] = LESSONS.glob(f"{number}*.ipynb")
    return cells(path, "code")


def calls(number: str, name: str) -> list[ast.Call]:
    return calls_in(code_of(number), name)


def calls_in(code: list[str], name: str) -> list[ast.Call]:
    trees = [ast.parse(python_of(cell)) for cell in code]
    nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [node for node in nodes if isinstance(node.func, ast.Name) and node.func.id == name]


@each_lesson
def test_its_predictions_are_those_of_its_data(lesson):
    asked = {ast.literal_eval(call.args[0]): call for call in calls(lesson.number, "predict")}
    assert asked.keys() == {each.question for each in lesson.predictions}
    for each in lesson.predictions:
        given = asked[each.question].args[1:]
        options = () if not given or isinstance(given[0], ast.Name) else tuple(ast.literal_eval(given[0]))
        assert options == each.options, each.question


@each_lesson
def test_every_prediction_is_compared(lesson):
    code = "\n".join(code_of(lesson.number))
    assert code.count(".compare(") >= len(lesson.predictions) > 0


def test_predictions_of_practice_are_asked_and_compared():
    notebooks = ("original_questions", "more_on_checkpoints", "judge_a_job")
    code = [cell for name in notebooks for cell in cells(LESSONS / "exercises" / f"{name}.ipynb", "code")]
    asked = {
        ast.literal_eval(call.args[0]): tuple(ast.literal_eval(call.args[1])) for call in calls_in(code, "predict")
    }
    assert asked == {each.question: each.options for each in load_practice()}
    assert "\n".join(code).count(".compare(") == len(asked) > 0


def test_a_wrong_prediction_of_practice_is_answered():
    for each in load_practice():
        number, known = find_prediction(each.question)
        assert (number, known) == ("practice", each)
        assert all(each.reply_to(option) for option in each.options if option != each.answer)


@each_lesson
def test_the_title_does_not_give_an_answer_away(lesson):
    for each in lesson.predictions:
        assert str(each.answer).lower() not in re.findall(r"\w+", lesson.title.lower()), each.question


@each_lesson
def test_it_ends_in_its_own_exit_ticket_of_three_questions(lesson):
    assert [ast.literal_eval(call.args[0]) for call in calls(lesson.number, "exit_ticket")] == [lesson.number]
    assert len(lesson.ticket) == 3
    assert all(len(each.options) >= 3 for each in lesson.ticket)


@each_lesson
def test_from_02_on_it_begins_with_questions_from_older_lessons(lesson):
    begins_so = [lesson.number] if lesson.number not in ("00", "01", CORE) else []
    assert [ast.literal_eval(call.args[0]) for call in calls(lesson.number, "review")] == begins_so
    assert not begins_so or calls_in(code_of(lesson.number)[:1], "review")


def test_the_numbers_that_the_first_lesson_shows_are_those_that_core_90_measures():
    [shown] = re.findall(r"^duplicated = (\[.*?\])", "\n".join(code_of("00")), re.MULTILINE)
    [measured] = re.findall(r"^assert .*audit\.duplicated for .* == (\[.*?\])$", "\n".join(code_of(CORE)), re.MULTILINE)
    assert ast.literal_eval(shown) == ast.literal_eval(measured)


@each_lesson
def test_each_change_fits_exactly_one_cell(lesson):
    for change in lesson.changes:
        meant = [cell for cell in code_of(lesson.number) if change.cell in cell]
        assert len(meant) == 1, change
        assert change.replace in meant[0], change
        assert change.replace != change.by
        ast.parse(change.expect, mode="eval")


def test_bad_data_of_practice_is_named(tmp_path):
    (tmp_path / "practice.toml").write_text('[[predictions]]\nquestion = "?"\noptions = [1, 2]\nanswer = 1\n')
    with pytest.raises(CourseError, match=r"practice.toml: the wrong options of '\?' are \['2'\], its replies \[\]"):
        load_practice(tmp_path)


def load(tmp_path, text):
    (tmp_path / "02.toml").write_text(text)
    return load_lessons(tmp_path)


def test_a_lesson_is_read(tmp_path):
    [lesson] = load(tmp_path, GOOD)
    assert (lesson.number, lesson.predictions[0].reply_to(2), lesson.predictions[0].reply_to(3)) == ("02", "No.", "")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("answer = 1", "answer = 3", "the answer 3 is none of the options"),
        ('{2 = "No."}', "{}", r"the wrong options of 'How many\?' are \['2'\], its replies \[\]"),
        ('{2 = "No."}', '{1 = "Yes.", 2 = "No."}', "its replies"),
        ("minutes = 45", "minutes = ", "02.toml: .*Invalid value"),
        ("minutes = 45", "hours = 1", "02.toml: .*hours"),
        ('question = "How many?"', "", "02.toml: 'question'"),
    ],
)
def test_bad_data_is_named(tmp_path, old, new, message):
    assert old in GOOD
    with pytest.raises(CourseError, match=message):
        load(tmp_path, GOOD.replace(old, new))


def test_a_lesson_that_is_none_is_named():
    with pytest.raises(CourseError, match="there is no lesson '99'"):
        find_lesson("99")
