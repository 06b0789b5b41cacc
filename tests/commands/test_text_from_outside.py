"""What comes from outside is printed as it is: addresses are no emoji, and square brackets are no markup."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

import pytest

from labs.commands import chaos, count, doctor
from labs.commands.console import plain_console
from labs.equipment.check import Check
from labs.evidence.auditor.audit import Result, audit
from labs.exercises.checker.finding import Finding, Grade
from labs.exercises.checker.report import Report
from labs.faults.chaos.journal import Strike
from labs.faults.chaos.plan import ChaosPlan
from labs.pipeline.log.log_report import LogReport
from labs.pipeline.log.replay import Replay
from labs.runs.chaos_report import ChaosReport
from labs.runs.count import CountedLog, Topics

OUTSIDE = ("2001:db8:a:b::1", "fd00:bee:1::2", "2001:db8::cd:1234:1", "[/home/x] [bold]refused[/bold]")


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


@pytest.mark.parametrize("text", OUTSIDE)
def test_clients_of_a_log_are_listed_by_their_names(capsys, text):
    counts, log = Counter({(0, text): 7}), LogReport()
    log.good = 7
    verdict = audit(counts, [Result(0, text, 7)])
    counted = CountedLog(log, Replay(7, 7, 0), counts, 0, verdict, Topics("source", "sink"))
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
    assert capsys.readouterr().out.count(text) == 3


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
