"""Which two questions are asked again, and that their answers stay apart from the others."""

from __future__ import annotations

import pytest

from labs.desk.course import CourseError, Lesson, Question, load_lessons
from labs.desk.progress import COMPARED, REVIEWED, TICKET, notes_of, progress_in
from labs.desk.questions import draw_two, review


def a_question(name: str) -> Question:
    return Question(name, "right", ("right", "wrong"), {"wrong": f"No, not in {name}."})


def a_lesson(number: str) -> Lesson:
    predictions = (a_question(f"{number} predicted"), a_question(f"{number} predicted too"))
    return Lesson(
        number,
        f"Lesson {number}",
        45,
        "Claim.",
        "Screen?",
        predictions=predictions,
        ticket=tuple(a_question(f"{number}{letter}") for letter in "abc"),
    )


OLDER = [a_lesson(f"{number:02}") for number in range(5)]


def drawn(*notes: dict, older: list[Lesson] = OLDER) -> list[str]:
    return [question.question for _, question in draw_two(older, notes)]


def answered(question: str, right: bool, kind: str = TICKET) -> dict:
    return {"kind": kind, "question": question, "said": "right" if right else "wrong", "right": right}


def compared(question: str, right: bool) -> dict:
    return {"kind": COMPARED, "question": question, "said": "right" if right else "wrong", "found": "right"}


def test_without_notes_one_is_of_the_last_lesson_and_one_of_the_middle():
    assert drawn() == ["04c", "01c"]
    assert drawn(older=OLDER[:4]) == ["03b", "01b"]
    assert drawn(older=OLDER[:1]) == ["00b", "00c"]


def test_wrong_answer_is_asked_again_until_it_is_right():
    assert drawn(answered("02a", False)) == ["02a", "04c"]
    assert drawn(answered("02a", False), answered("02a", False, REVIEWED))[0] == "02a"
    assert drawn(answered("02a", False), answered("02a", True, REVIEWED)) == ["04c", "01c"]


def test_two_wrong_answers_of_one_lesson_are_not_asked_together():
    assert drawn(answered("02a", False), answered("02b", False), answered("00a", False)) == ["02a", "00a"]


def test_lesson_with_the_most_wrong_predictions_comes_first():
    wrong = [compared("00 predicted", False), compared("03 predicted", False), compared("03 predicted too", False)]
    assert drawn(*wrong) == ["03c", "00c"]


def test_only_the_first_comparison_counts():
    assert drawn(compared("00 predicted", True), compared("00 predicted", False)) == drawn()
    assert drawn(compared("00 predicted", False), compared("00 predicted", True))[0] == "00c"


def test_what_was_asked_again_waits_until_all_others_were():
    assert drawn(answered("04c", True, REVIEWED), answered("01c", True, REVIEWED)) == ["04a", "01a"]
    all_of_4 = [answered(f"04{letter}", True, REVIEWED) for letter in "abc"]
    assert drawn(*all_of_4) == ["01c", "03c"]


def test_answers_are_kept_and_the_same_two_are_asked_again(desk):
    asked = review("05")
    wrong = next(n for n, option in enumerate(asked.questions[0].options, 1) if option != asked.questions[0].answer)
    assert asked.answer(1, wrong).startswith("Incorrect. ")
    again = review("05")
    assert [each.question for each in again.questions] == [each.question for each in asked.questions]
    assert "Incorrect. " in again._widgets[0].widget.reply
    assert review("06").questions[0] == asked.questions[0], "and in the next lesson, since the answer was wrong"


def test_answers_do_not_count_as_progress(desk):
    before = progress_in(notes_of())
    review("05").answer(1, 1)
    assert len(list(notes_of())) == 1
    assert progress_in(notes_of()) == before


def test_reply_says_which_lesson_the_question_is_from():
    asked = review("02")
    assert any(f"(Lesson {each.number}, {each.title}.)" in asked.answer(1, 1) for each in load_lessons()[:2])


def test_without_a_desk_every_lesson_has_a_draw_of_two(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, *others = load_lessons()
    for lesson in others:
        assert str(review(lesson.number)) == str(review(lesson.number))
        assert len({each.question for each in review(lesson.number).questions}) == 2
    with pytest.raises(CourseError, match=f"{first.number} is the first lesson"):
        review(first.number)
    with pytest.raises(CourseError, match="there is no lesson '99'"):
        review("99")
