"""The directory that a student writes in, and the reader who looks at it after each crash."""

from __future__ import annotations

import time
from typing import Any

import pytest

from labs.exercises.checker.clients import ExerciseFiles
from labs.exercises.checker.crash_points import CrashPoints, RunJournal, read_journal
from labs.exercises.checker.scenario import Lab
from labs.exercises.file_manifest import CHANGED, TORN, PublishedFiles, visible


class Watching(CrashPoints):
    """Keeps what is in the directory whenever a point is reached."""

    def __init__(self, journal, directory):
        super().__init__(journal)
        self.directory, self.seen = directory, {}

    def reach(self, point):
        super().reach(point)
        self.seen[point] = {file.name: file.read_text() for file in self.directory.iterdir() if file.is_file()}


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "files").mkdir()
    return tmp_path / "files"


@pytest.fixture
def points(directory, tmp_path):
    return Watching(RunJournal(tmp_path / "journal", time.time()), directory)


@pytest.fixture
def files(points, directory):
    return ExerciseFiles(points, directory)


def test_file_is_half_there_while_it_is_written_and_whole_afterwards(files, points):
    files.write("x", ["abc", "def"])
    assert points.seen["midway files.write"] == {"x": "abc\n"}
    assert points.seen["after files.write"] == {"x": "abc\ndef\n"}
    assert files.read("x") == ["abc", "def"]


def test_rename_replaces_and_leaves_nothing_behind(files):
    files.write("draft", ["new"])
    files.write("manifest/0", ["old"])
    files.rename("draft", "manifest/0")
    assert (files.names(), files.read("manifest/0")) == (["manifest/0"], ["new"])
    assert files.exists("manifest/0")
    assert not files.exists("draft")


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside", "", "."])
def test_name_outside_of_the_directory_is_refused(files, name):
    with pytest.raises(ValueError, match="is no name in this directory"):
        files.write(name, [])


def test_text_instead_of_lines_is_refused(files):
    with pytest.raises(TypeError, match="takes a list of lines, and not the text 'abc'"):
        files.write("x", "abc")


def test_journal_says_which_file_was_half_written(files, tmp_path):
    files.write("x", ["abc"])
    said = [event["what"] for event in read_journal(tmp_path / "journal") if event["kind"] == "call"]
    assert said == ["files.write(x): half of it is written", "files.write(x, 1 line)"]


@pytest.fixture
def trial(tmp_path):
    process: Any = None  # nothing is run
    return PublishedFiles(Lab("", tmp_path, process), anew=True)


def publish(trial, batch, lines, name="batch"):
    (trial.directory / "manifest").mkdir(exist_ok=True)
    (trial.directory / name).write_text("".join(f"{line}\n" for line in lines))
    (trial.directory / "manifest" / str(batch)).write_text(f"{name}\n")


def test_reader_sees_what_the_manifest_names_and_nothing_else(trial):
    [first, second, *_] = trial.tools()["batches"]
    publish(trial, 0, first)
    (trial.directory / "not-named").write_text("".join(f"{line}\n" for line in second))
    trial.look()
    assert (list(visible(trial.directory)), trial.complaint) == (first, None)


def test_reader_complains_about_a_part_of_a_batch(trial):
    publish(trial, 0, trial.tools()["batches"][0][:2])
    trial.look()
    symptom, what = trial.complaint
    assert (symptom, what) == (TORN, "a reader who came after run 1: 2 of the 5 rows of batch 0 are there")


def test_reader_complains_about_an_entry_without_its_file(trial):
    publish(trial, 0, trial.tools()["batches"][0])
    (trial.directory / "batch").unlink()
    trial.look()
    assert trial.complaint[0] == TORN
    assert "manifest/0 names 'batch', and there is no such file" in trial.complaint[1]


def test_reader_complains_about_rows_that_replaced_what_was_read(trial):
    for _ in range(2):
        publish(trial, 0, trial.tools()["batches"][0])
        trial.look()
    symptom, what = trial.complaint
    assert symptom == CHANGED
    assert '"computed_in_run": 1} was read before' in what
    assert what.endswith('"computed_in_run": 2}')


def test_same_rows_again_are_no_reason_to_complain(trial):
    lines = trial.tools()["batches"][0]
    for name in ("batch", "other"):
        publish(trial, 0, lines, name)
        trial.look()
    assert trial.complaint is None
