"""What comes from outside is printed as it is: addresses are no emoji, and square brackets are no markup."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from labs.commands import chaos, count, doctor
from labs.commands.console import plain_console
from labs.commands.main import main
from labs.equipment.machine_checks import Check
from labs.equipment.plain_text import first_line, one_line
from labs.evidence.auditor.audit import Result, audit, audit_parts
from labs.exercises.checker.check import find_exercise
from labs.exercises.checker.report import Report, as_gradescope, as_summary, github_lines
from labs.exercises.checker.scenario import Finding, Grade
from labs.faults.chaos_injectors import ChaosPlan, Strike
from labs.pipeline.log.log_report import LogReport
from labs.pipeline.log.replay import Replay
from labs.runs.chaos import ChaosReport
from labs.runs.count import CountedLog, Topics
from labs.runs.window_parts import WindowParts

OUTSIDE = ("2001:db8:a:b::1", "fd00:bee:1::2", "2001:db8::cd:1234:1", "[/home/x] [bold]refused[/bold]")


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


@pytest.mark.parametrize("text", OUTSIDE)
def test_clients_of_a_log_are_listed_by_their_names(capsys, text):
    parts, log = WindowParts(), LogReport()
    log.good = 7
    assert len(list(parts.watch([(0, text)] * 7))) == 7
    assert list(parts.add([Result(0, text, 7)])) == [1]
    per_window, per_ip = Counter({0: 7}), Counter({text: 7})
    verdict = audit_parts(parts)
    counted = CountedLog(log, Replay(7, 7, 0), parts, per_window, per_ip, 0, verdict, Topics("source", "sink"))
    count.show(counted, argparse.Namespace(plot=None, json=False, top=3), plain_console(stderr=True))
    assert text in capsys.readouterr().out


@pytest.mark.parametrize("text", OUTSIDE)
def test_faults_of_a_chaos_run_are_listed_with_their_details(capsys, text):
    strikes = [Strike("driver-ended", 1.0, text, 1.0, injected=False)]
    verdict = audit({(0, "a"): 1}, [Result(0, "a", 1)])
    report = ChaosReport(ChaosPlan(), verdict, strikes, [], [], 1, Path(f"out/{text}"))
    screen = chaos.Screen(report.plan)
    screen.strikes = strikes
    plain_console().print(screen)
    chaos.show(report, Path(f"out/{text}/timeline.png"))
    shown = capsys.readouterr().out
    assert shown.count(text) == 3
    assert shown.startswith("chaos, seed 7, 3 min into the exactly-once sink\n")


@pytest.mark.parametrize("text", OUTSIDE)
def test_findings_of_the_doctor_are_shown_with_their_cures(capsys, monkeypatch, text):
    found = Check("port", False, found=f"in use: {text}", cure=f"free {text}")
    monkeypatch.setattr("labs.equipment.doctor.checks", lambda starting: [found])
    assert doctor.run(argparse.Namespace(json=False)) == 1
    assert capsys.readouterr().out.count(text) == 2


@pytest.mark.parametrize("text", [*OUTSIDE, "a[/b].py"])
def test_report_of_a_check_shows_file_and_detail(capsys, text):
    finding = Finding(scenario=text, action=text, grade=Grade.FAILED, detail=text, examples=[text], hint=text)
    report = Report("commit_order", text, [finding], note=text)
    assert str(report).count(text) == 8
    report.show(plain_console())
    assert capsys.readouterr().out.count(text) == 8


# What clears a screen, turns words around, breaks XML, ends a line and a workflow's peace, and fills a disk.
HOSTILE = {
    "a screen that is cleared": "\x1b[2J\x1b[1;1Hpassed in 3 s",
    "a title that is set": "\x1b]0;passed\x07",
    "controls of eight bits": "\x9b2Jpassed\x85",
    "words turned around": "failed \u202edessap\u202c",
    "no character of XML": "\x00\x0b\ufffe\uffff",
    "half a character": "\ud800 \udfff",
    "a line of its own": "no\n::error::obey me\npassed\r\npassed\rpassed\u2028passed",
    "a page of it": "x" * 10_000_000,
}
hostile = pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)


def judged(text: str) -> Report:
    """Return a report that holds a text of the student's wherever one can come to stand."""
    finding = Finding(
        scenario="no crash",
        action="It runs.",
        grade=Grade.FAILED,
        symptom="crashed",
        detail=text,
        examples=[text],
        timeline=[(text, text)],
        hint=text,
        cause=text,
    )
    return Report("commit_order", text, [finding], note=text, seconds=3.0)


def is_plain(text: str) -> bool:
    return all(c.isprintable() or c in "\n\t" for c in text) and len(text) < 50_000


@hostile
def test_report_of_a_check_is_plain_whatever_the_student_wrote(capsys, text):
    report = judged(text)
    report.show(plain_console())
    shown = capsys.readouterr().out
    assert is_plain(shown)
    assert is_plain(str(report))
    assert is_plain(report.summary)
    assert is_plain(json.dumps(report.as_dict(), ensure_ascii=False))
    assert "failed in 3 s" in shown.splitlines()[-1]
    assert {case.tag for case in ElementTree.fromstring(report.as_junit())} == {"testcase"}


@hostile
def test_graders_are_told_plainly_whatever_the_student_wrote(tmp_path, text):
    exercise = find_exercise("commit_order")
    report = judged(text)
    assert is_plain(json.dumps(as_gradescope(report, exercise), ensure_ascii=False))
    lines = github_lines(report, exercise)
    assert all(is_plain(line) and "\n" not in line for line in lines)
    assert is_plain(as_summary(report, exercise))


def test_what_an_exception_says_is_one_line_and_keeps_every_character(tmp_path):
    text = "\x1b[2J" + HOSTILE["a line of its own"]
    said = "no\\n::error::obey me\\npassed\\npassed\\rpassed\\u2028passed"
    assert one_line(text) == "\\x1b[2J" + said
    assert first_line("\n\n  no such key  \n\tat Main.java:3") == "no such key …"
    assert one_line("x" * 500, 10) == "x" * 10 + " … (490 more characters)"


@pytest.mark.parametrize("command", ["check", "attack", "desk"])
@pytest.mark.parametrize("name", ["a\x1b[2Jb", "a\n::error::obey me", "a\u202eb"])
def test_name_of_a_file_is_printed_plainly(capsys, tmp_path, command, name):
    arguments = {
        "check": ["check", "commit_order", str(tmp_path / name)],
        "attack": ["attack", "--seed", "1", "--schedule", str(tmp_path / name)],
        "desk": ["desk", str(tmp_path / "desk"), "--reset", name],
    }[command]
    assert main(arguments) in (1, 2)
    error = capsys.readouterr().err
    assert is_plain(error)
    assert "\n" not in error.rstrip("\n")
