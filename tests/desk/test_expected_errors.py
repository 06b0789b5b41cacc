"""An error of the lab's own and an interrupt are shown with the student's lines; other errors are shown whole."""

from __future__ import annotations

import pytest
from IPython.core.interactiveshell import InteractiveShell

from labs.desk.cells import show_expected_errors_briefly


@pytest.fixture
def cell(capsys):
    """Execute a cell in a shell of its own and return what it shows."""
    shell = InteractiveShell()
    shell.run_line_magic("colors", "nocolor")
    show_expected_errors_briefly(shell)

    def run(source: str) -> str:
        shell.run_cell(source, store_history=True)
        return capsys.readouterr().out

    return run


def test_error_of_the_lab_comes_without_the_labs_lines(cell):
    shown = cell("from labs.desk.course import find_lesson\ndef mine():\n    return find_lesson('99')\nmine()")
    assert "CourseError: there is no lesson '99'" in shown
    assert "return find_lesson('99')" in shown, "the student's own lines"
    assert "course.py" not in shown


def test_error_of_the_lab_comes_without_what_it_was_raised_from(cell, monkeypatch):
    """`KafkaUnreachable` says what kafka-python's error means; that error's lines are in nobody's notebook."""
    monkeypatch.setattr("labs.equipment.topics.PATIENCE_MS", 200)
    shown = cell("from labs.equipment.topics import end_offsets\nend_offsets('127.0.0.1:1', 'topic')")
    assert "KafkaUnreachable: no Kafka answers at 127.0.0.1:1" in shown
    assert "topics.py" not in shown
    assert "During handling" not in shown
    assert "direct cause" not in shown


def test_all_lines_are_there_on_demand(cell):
    cell("from labs.desk.course import find_lesson\nfind_lesson('99')")
    assert "course.py" in cell("%tb")


def test_interrupt_shows_the_line_of_the_cell_and_no_others(cell):
    shown = cell("import json\ndef stop(digits):\n    raise KeyboardInterrupt\njson.loads('1', parse_int=stop)")
    assert "KeyboardInterrupt" in shown
    assert "json.loads('1', parse_int=stop)" in shown
    assert "decoder.py" not in shown
    assert "decoder.py" in cell("%tb")


def test_other_errors_are_shown_as_ever(cell):
    assert "decoder.py" in cell("import json\njson.loads('[')")
    assert "ZeroDivisionError" in cell("1 / 0")
    assert "SyntaxError" in cell("1 +")
