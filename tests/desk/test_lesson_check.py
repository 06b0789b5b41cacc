"""A lesson's checks: the verdict is noted on the desk, and who is stuck is handed the reference solution."""

from __future__ import annotations

import linecache
import socket

import pytest
from IPython.core.interactiveshell import InteractiveShell

from labs.desk.bench import open_bench
from labs.desk.lesson_check import Executed, _listens, check, own_or_reference
from labs.desk.progress import notes_of
from labs.exercises.checker.student_module import MARK, read_source
from labs.exercises.checker.student_process import IDLE, Interpreter

SKELETON = f"""{MARK}
def lose_nothing(consumer, handle):
    while (message := consumer.poll()) is not None:
        consumer.commit()
        handle(message)


def double_nothing(consumer, handle):
    while (message := consumer.poll()) is not None:
        consumer.commit()
        handle(message)
"""
RIGHT = SKELETON.replace(
    "        consumer.commit()\n        handle(message)", "        handle(message)\n        consumer.commit()", 1
)


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_skeleton_fails_and_the_reference_passes(broker, desk, capsys):
    attempt = check("commit_order", [SKELETON], servers=broker.bootstrap_servers, fail_fast=True)
    first = attempt.first_problem
    assert first is not None
    assert attempt.summary.splitlines()[-1].startswith(f"{first.scenario}: failed ({first.lost} lost, ")
    assert first.lost
    assert (
        attempt.summary == check("commit_order", [SKELETON], servers=broker.bootstrap_servers, fail_fast=True).summary
    )
    final = own_or_reference(attempt, servers=broker.bootstrap_servers)
    assert final.passed
    assert "def lose_nothing" in capsys.readouterr().out
    assert [note["verdict"] for note in notes_of().of("checked")] == ["failed", "failed"], "the reference is no attempt"


@pytest.mark.long
@pytest.mark.timeout(120)
def test_what_passed_stays_the_students(broker, desk, capsys):
    attempt = check("commit_order", [RIGHT], servers=broker.bootstrap_servers)
    assert attempt.passed, attempt
    assert own_or_reference(attempt) is attempt
    assert capsys.readouterr().out == "Yours is green.\n"
    assert {line.rpartition(": ")[2] for line in attempt.summary.splitlines()} == {"passed"}
    assert [note["verdict"] for note in notes_of().of("checked")] == ["passed"]


def test_of_several_cells_those_count_that_define_what_the_exercise_asks_for():
    other = f"{MARK}\ndef publish(rows, batch_id, kafka):\n    pass\n"
    unfinished = f"{MARK}\ndef publish(rows, batch_id, kafka:\n"
    assert read_source("commit_order", [SKELETON, other]).text == SKELETON
    assert read_source("exactly_once_sink", [SKELETON, other, unfinished, SKELETON]).text == unfinished
    assert read_source("two_phase", [SKELETON, other]).text == other, "then the last one, to be told what is missing"


def test_a_student_who_deletes_the_marks_line_is_not_judged_by_an_older_cell():
    unmarked = RIGHT.removeprefix(f"{MARK}\n")
    for newest in (unmarked, f"import time\n\n{RIGHT}"):
        assert read_source("commit_order", [SKELETON, newest, "lose_nothing"]).text == newest


def test_cells_are_known_where_a_notebook_keeps_no_history(monkeypatch):
    monkeypatch.setattr(linecache, "cache", {})  # what other tests have executed
    shell = InteractiveShell()
    shell.run_cell("1 + 1", store_history=False)
    shell.run_cell(SKELETON, store_history=False)  # before `check` is imported, as in the notebook of an exercise
    executed = Executed()
    executed.watch(shell)
    executed.watch(None)  # no notebook
    shell.run_cell("2 + 2", store_history=False)
    shell.run_cell(RIGHT, store_history=True)
    shell.run_cell(SKELETON, store_history=False)
    assert [cell.strip() for cell in executed.cells] == [
        "1 + 1",
        SKELETON.strip(),
        "2 + 2",
        RIGHT.strip(),
        SKELETON.strip(),
    ]


@pytest.mark.long
def test_a_lesson_that_closes_its_bench_ends_what_the_checker_kept_warm():
    kept = Interpreter()
    IDLE.append(kept)
    bench = open_bench(spark=False)
    bench.close()
    assert kept.process.pid is None
    assert kept not in IDLE


@pytest.mark.long
@pytest.mark.timeout(180)
def test_a_check_after_the_bench_was_closed_judges_all_the_same():
    """As after "Run All": the student edits the cell and runs the check again."""
    bench = open_bench(spark=False)
    servers = bench.servers
    bench.close()
    attempt = check("commit_order", [SKELETON], servers=servers, fail_fast=True)
    first = attempt.first_problem
    assert first is not None
    assert (str(first.grade), first.symptom) == ("failed", "lost"), attempt


def test_address_at_which_nobody_listens_is_known_at_once():
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = f"127.0.0.1:{server.getsockname()[1]}"
        assert _listens(f"{there},127.0.0.1:1")
    for servers in (there, "127.0.0.1:1", "no such host.example:9092", "", "nowhere", "127.0.0.1:x", "[::1]:1"):
        assert not _listens(servers)
