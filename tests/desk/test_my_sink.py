"""A sink that passed is kept on the desk, once, and later lessons find it."""

from __future__ import annotations

from labs.desk.lesson_check import SINK_FILE, keep_sink, my_sink
from labs.exercises.checker.student_module import solution_of

SINK = "# your solution\ndef publish(rows, batch_id, kafka): ..."


def test_sink_that_passed_is_kept_and_found(desk, capsys):
    keep_sink(SINK)
    assert (desk / SINK_FILE).read_text() == SINK + "\n"
    assert my_sink() == str(desk / SINK_FILE)
    keep_sink(SINK)  # the same cell again
    assert capsys.readouterr().out == f"Kept as {SINK_FILE}: later lessons use it.\n{SINK_FILE} of your desk\n"


def test_another_sink_on_the_desk_is_never_overwritten(desk, capsys):
    (desk / SINK_FILE).write_text("mine")
    keep_sink(SINK)
    assert (desk / SINK_FILE).read_text() == "mine"
    assert "is another one, and was not changed" in capsys.readouterr().out


def test_without_a_desk_nothing_is_kept_and_the_reference_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    keep_sink(SINK)
    assert not list(tmp_path.iterdir())
    assert my_sink() == str(solution_of("exactly_once_sink"))
    assert capsys.readouterr().out == "the reference solution of lesson 07\n"


def test_desk_of_which_a_lesson_lies_in_a_folder_has_one_sink(desk, monkeypatch):
    (desk / "exercises").mkdir()
    monkeypatch.chdir(desk / "exercises")
    keep_sink(SINK)
    assert (desk / SINK_FILE).exists()
