"""The desk: lessons without outputs, brought up to date, and never a student's work overwritten."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from labs.commands.main import main
from labs.desk.desk import DeskError, lay_out, solution_on


def lesson(path, text="count(log)"):
    cell = {"cell_type": "code", "id": "a", "metadata": {}, "execution_count": 3, "source": [text]}
    notebook = {"cells": [{**cell, "outputs": [{"output_type": "stream", "name": "stdout", "text": ["24"]}]}]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**notebook, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))


def source(path) -> str:
    return json.loads(path.read_text())["cells"][0]["source"][0]


@pytest.fixture
def lessons(tmp_path):
    lesson(tmp_path / "lessons" / "02_restart.ipynb")
    lesson(tmp_path / "lessons" / "03_checkpoint.ipynb")
    lesson(tmp_path / "lessons" / "exercises" / "1_order.ipynb")
    return tmp_path / "lessons"


@pytest.fixture
def desk(tmp_path, lessons):
    made = tmp_path / "my desk"
    lay_out(made, lessons=lessons)
    return made


def edit(path, text="mine"):
    path.write_text(path.read_text().replace("count(log)", text))


def test_lessons_lie_on_it_without_their_outputs(desk):
    cell = json.loads((desk / "02_restart.ipynb").read_text())["cells"][0]
    assert (cell["outputs"], cell["execution_count"], cell["source"]) == ([], None, ["count(log)"])
    assert (desk / "exercises" / "1_order.ipynb").exists()


def test_a_second_time_nothing_happens(desk, lessons):
    edit(desk / "02_restart.ipynb")
    laid = lay_out(desk, lessons=lessons)
    assert laid == type(laid)()
    assert source(desk / "02_restart.ipynb") == "mine"


def test_a_changed_lesson_replaces_one_that_nobody_touched(desk, lessons):
    lesson(lessons / "02_restart.ipynb", "count(log, 2)")
    assert lay_out(desk, lessons=lessons).renewed == ["02_restart.ipynb"]
    assert source(desk / "02_restart.ipynb") == "count(log, 2)"


def test_a_changed_lesson_is_laid_beside_a_students_and_never_over_it(desk, lessons):
    edit(desk / "02_restart.ipynb")
    lesson(lessons / "02_restart.ipynb", "count(log, 2)")
    assert lay_out(desk, lessons=lessons).beside == ["02_restart.fresh.ipynb"]
    assert source(desk / "02_restart.ipynb") == "mine"
    (desk / "02_restart.fresh.ipynb").write_text((desk / "02_restart.ipynb").read_text().replace("mine", "mine too"))
    lesson(lessons / "02_restart.ipynb", "count(log, 3)")
    assert lay_out(desk, lessons=lessons).beside == ["02_restart.fresh-2.ipynb"]
    assert source(desk / "02_restart.fresh.ipynb") == "mine too"
    assert source(desk / "02_restart.fresh-2.ipynb") == "count(log, 3)"


def test_a_reset_keeps_what_was_there_under_another_name(desk, lessons):
    for number in (1, 2):
        edit(desk / "02_restart.ipynb", f"mine {number}")
        assert lay_out(desk, "02", lessons=lessons).kept == [f"02_restart.mine-{number}.ipynb"]
        assert source(desk / "02_restart.ipynb") == "count(log)"
        assert source(desk / f"02_restart.mine-{number}.ipynb") == f"mine {number}"


def test_a_lesson_that_was_deleted_comes_back(desk, lessons):
    (desk / "03_checkpoint.ipynb").unlink()
    assert lay_out(desk, lessons=lessons).new == ["03_checkpoint.ipynb"]


def test_a_lesson_that_left_the_course_stays_on_the_desk(desk, lessons):
    (lessons / "03_checkpoint.ipynb").unlink()
    assert lay_out(desk, lessons=lessons).gone == ["03_checkpoint.ipynb"]
    assert (desk / "03_checkpoint.ipynb").exists()


def test_with_its_list_lost_everything_counts_as_the_students(desk, lessons):
    (desk / ".desk.json").write_text("{")
    edit(desk / "02_restart.ipynb")
    lay_out(desk, lessons=lessons)
    assert source(desk / "02_restart.ipynb") == "mine"


def test_somebody_elses_folder_is_left_alone(tmp_path, lessons):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").touch()
    with pytest.raises(DeskError, match="is no desk and not empty"):
        lay_out(tmp_path / "photos", lessons=lessons)
    with pytest.raises(DeskError, match="is a file"):
        lay_out(tmp_path / "photos" / "a.jpg", lessons=lessons)
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["a.jpg"]


def test_a_lesson_that_is_none_cannot_be_reset(desk, lessons):
    with pytest.raises(DeskError, match=r"there is no lesson '07'; there are: 02_restart, 03_checkpoint, 1_order"):
        lay_out(desk, "07", lessons=lessons)


@pytest.mark.parametrize("number", ["3", "03", "003", "03_checkpoint", "03_checkpoint.ipynb", "checkpoint"])
def test_a_lesson_is_reset_by_its_number_with_or_without_a_zero(desk, lessons, number):
    lesson(lessons / "exercises" / "3_transaction.ipynb")
    lay_out(desk, lessons=lessons)
    edit(desk / "03_checkpoint.ipynb")
    edit(desk / "exercises" / "3_transaction.ipynb")
    assert lay_out(desk, number, lessons=lessons).kept == ["03_checkpoint.mine-1.ipynb"]
    assert source(desk / "exercises" / "3_transaction.ipynb") == "mine"


@pytest.mark.parametrize("name", ["1_order", "order", "exercises/1_order.ipynb"])
def test_an_exercise_is_reset_by_its_name(desk, lessons, name):
    edit(desk / "exercises" / "1_order.ipynb")
    assert lay_out(desk, name, lessons=lessons).kept == ["exercises/1_order.mine-1.ipynb"]


@pytest.mark.parametrize("name", ["1", "01", "", "0", "../02_restart", "exercises", "3" * 5_000])
def test_what_names_no_lesson_resets_none(desk, lessons, name):
    edit(desk / "exercises" / "1_order.ipynb")
    with pytest.raises(DeskError, match="there is no lesson"):
        lay_out(desk, name, lessons=lessons)
    assert source(desk / "exercises" / "1_order.ipynb") == "mine"


def test_a_lesson_that_nobody_changed_is_not_said_to_be_renewed_when_it_is_reset(desk, lessons):
    laid = lay_out(desk, "03", lessons=lessons)
    assert (laid.same, laid.renewed, laid.kept) == (["03_checkpoint.ipynb"], [], [])
    lesson(lessons / "03_checkpoint.ipynb", "count(log, 2)")
    laid = lay_out(desk, "03", lessons=lessons)
    assert (laid.same, laid.renewed, laid.kept) == ([], ["03_checkpoint.ipynb"], [])


def a_folder(path):
    path.mkdir()
    (path / "mine.txt").write_text("mine")


def a_dangling_link(path):
    path.symlink_to(path.parent / "nowhere" / "it.ipynb")


def a_link_in_a_circle(path):
    path.symlink_to(path)


def a_link_to_something_of_the_students(path):
    (path.parent / "my.txt").write_text("mine")
    path.symlink_to("my.txt")


@pytest.mark.parametrize("put", [a_folder, a_dangling_link, a_link_in_a_circle, a_link_to_something_of_the_students])
def test_what_has_a_lessons_name_and_is_none_stays_and_the_lesson_is_laid_beside_it(desk, lessons, put):
    (place := desk / "02_restart.ipynb").unlink()
    put(place)
    before = sorted((path.name, path.is_symlink()) for path in desk.iterdir())
    assert lay_out(desk, lessons=lessons) == type(lay_out(desk, lessons=lessons))(), "the course has not changed it"
    lesson(lessons / "02_restart.ipynb", "count(log, 2)")
    assert lay_out(desk, lessons=lessons).beside == ["02_restart.fresh.ipynb"]
    assert source(desk / "02_restart.fresh.ipynb") == "count(log, 2)"
    assert sorted((path.name, path.is_symlink()) for path in desk.iterdir() if "fresh" not in path.name) == before
    assert lay_out(desk, "02", lessons=lessons).kept == ["02_restart.mine-1.ipynb"]
    assert source(desk / "02_restart.ipynb") == "count(log, 2)"
    assert not (desk / "02_restart.ipynb").is_symlink()


@pytest.mark.parametrize("name", ["", "exercises", ".desk.json"])
@pytest.mark.parametrize("put", [a_dangling_link, a_link_in_a_circle, lambda path: path.write_text("mine")])
def test_what_is_in_the_way_of_the_desk_is_one_line(tmp_path, desk, lessons, name, put):
    place = desk / name if name else tmp_path / "desk"
    if place.is_dir():
        shutil.rmtree(place)
    elif name:
        place.unlink()
    put(place)
    if name == ".desk.json" and place.is_file():
        lay_out(desk, lessons=lessons)  # a list that is lost is no obstacle
        return
    with pytest.raises(DeskError) as refused:
        lay_out(desk if name else place, lessons=lessons)
    assert str(refused.value).isprintable()


def solve(path, text="handle(message)"):
    path.write_text(path.read_text().replace("consumer.commit()", text))


MARKED = "# your solution\ndef lose_nothing(consumer, handle):\n    consumer.commit()\n"


def test_solution_in_a_lesson_is_found_where_the_exercise_was_left_alone(tmp_path, lessons):
    lesson(lessons / "exercises" / "1_commit_order.ipynb", MARKED)
    lesson(lessons / "02_restart.ipynb", MARKED)
    notebook = json.loads((lessons / "02_restart.ipynb").read_text())
    notebook["cells"].append({**notebook["cells"][0], "source": ['attempt = check("commit_order", In, servers=s)']})
    (lessons / "02_restart.ipynb").write_text(json.dumps(notebook))
    lay_out(desk := tmp_path / "desk", lessons=lessons)
    exercise, lesson_02 = desk / "exercises" / "1_commit_order.ipynb", desk / "02_restart.ipynb"
    assert solution_on(desk, "commit_order", lessons) == exercise
    solve(lesson_02)
    assert solution_on(desk, "commit_order", lessons) == lesson_02
    solve(exercise)
    os.utime(lesson_02, (1, 1))
    assert solution_on(desk, "commit_order", lessons) == exercise
    os.utime(exercise, (0, 0))
    assert solution_on(desk, "commit_order", lessons) == lesson_02
    lesson_02.write_text("{")
    assert solution_on(desk, "commit_order", lessons) == exercise
    exercise.unlink()
    lesson_02.unlink()
    assert solution_on(desk, "commit_order", lessons) is None
    assert solution_on(tmp_path, "commit_order", lessons) is None
    assert solution_on(desk, "../commit_order", lessons) is None


def test_a_lessons_links_lead_where_they_led_wherever_the_desk_is(tmp_path, lessons):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "glossary.md").touch()
    text = "See [epoch](../docs/glossary.md#epoch), [03](03_checkpoint.ipynb), [gone](../docs/gone.md)."
    cell = {"cell_type": "markdown", "id": "a", "metadata": {}, "source": [text]}
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (lessons / "02_restart.ipynb").write_text(json.dumps(notebook))
    lay_out(tmp_path / "far" / "away" / "desk", lessons=lessons)
    moved = text.replace("(../docs/glossary.md", "(../../../docs/glossary.md")
    assert source(tmp_path / "far" / "away" / "desk" / "02_restart.ipynb") == moved


@pytest.mark.bench
def test_from_the_command_line(tmp_path, capsys):
    assert main(["desk", str(tmp_path / "my lab")]) == 0
    assert "lessons and exercises laid down" in capsys.readouterr().out
    assert main(["desk", str(tmp_path / "my lab")]) == 0
    assert capsys.readouterr().out.endswith("my lab, up to date\n")
    assert main(["progress", str(tmp_path / "my lab")]) == 0
    assert "commit_order" in capsys.readouterr().out
    assert main(["progress", str(tmp_path)]) == 1
    assert "is no desk; `python -m labs desk` makes one" in capsys.readouterr().err
