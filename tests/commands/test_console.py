"""What a command shows while it works."""

import io

import pytest
from rich.console import Console

from labs.commands.console import Bars, Lines, Remaining, bench_progress, in_colour, plain_console
from labs.evidence.auditor.audit import Result, audit
from labs.exercises.checker.report import Report
from labs.exercises.checker.scenario import Finding, Grade


def lines_of(*reports, now=lambda: 0.0) -> list[str]:
    text = io.StringIO()
    lines = Lines(Console(file=text, markup=False, emoji=False), now)
    for report in reports:
        lines.show(*report)
    return text.getvalue().splitlines()


def test_without_a_terminal_a_task_is_a_line_at_its_beginning_each_tenth_and_its_end():
    said = lines_of(*(("counting", done, 1_000) for done in range(0, 1_001, 10)))
    assert said == ["counting: 0 of 1,000", *(f"counting: {done:,} of 1,000" for done in range(100, 1_001, 100))]


def test_task_of_unknown_length_is_a_line_every_five_seconds():
    seconds = iter(range(100))
    said = lines_of(*(("reading", done) for done in range(12)), now=lambda: next(seconds) / 2)
    assert said[0] == "reading: 0"
    assert 1 < len(said) < 5


def test_no_news_is_no_line():
    assert lines_of(*[("counting", 5, 10)] * 50) == ["counting: 5 of 10"]


def test_lines_are_chosen_where_there_is_no_terminal(capsys):
    with bench_progress(plain_console(stderr=True)) as progress:
        progress.show("starting", 1, 2, "the [/broker]:bee:")
    assert capsys.readouterr() == ("", "the [/broker]:bee:: 1 of 2\n")


def test_lines_are_not_padded_where_there_is_no_terminal(capsys):
    finding = Finding(
        scenario="no crash", action="", grade=Grade.FAILED, examples=["window 0"], timeline=[("1 s", "x")]
    )
    Report("commit_order", "mine.py", [finding], "a note").show(plain_console())
    lines = capsys.readouterr().out.splitlines()
    assert "  window 0" in lines
    assert [line for line in lines if line != line.rstrip()] == []


@pytest.mark.parametrize(("no_colour", "red", "green"), [("", 1, 1), ("1", 0, 0)])
def test_verdict_of_an_audit_is_coloured_in_a_terminal_and_nowhere_else(monkeypatch, capsys, no_colour, red, green):
    twice = audit({(0, "a"): 7}, [Result(0, "a", 7)] * 2)
    monkeypatch.setenv("NO_COLOR", no_colour)
    monkeypatch.setenv("TERM", "xterm")
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=80)
    console.print(in_colour(twice))
    console.print(in_colour(audit({(0, "a"): 7}, [Result(0, "a", 7)])))
    assert text.getvalue().count("31minvalid") == red
    assert text.getvalue().count("32mvalid") == green
    assert "31m  duplicated           1" in text.getvalue() or no_colour
    plain_console().print(in_colour(twice), soft_wrap=True)
    assert capsys.readouterr().out == f"{twice}\n"


def test_bars_fit_on_80_columns_and_show_their_numbers():
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=80, height=20, markup=False, emoji=False)
    bars = Bars(console)
    bars.show("the staircase", 17, 42, "start from latest, lost_acknowledgement + mid_rows + after_commit")
    bars.close()
    paper = io.StringIO()
    Console(file=paper, width=80).print(bars._progress.get_renderable())
    [line] = paper.getvalue().splitlines()
    assert "start from latest" in line
    assert "17/42" in line
    assert "0:00:0" in line


def test_bars_say_how_long_a_task_will_still_take():
    now = 0.0
    bars = Bars(Console(file=io.StringIO(), force_terminal=True, width=80))
    bars.close()
    bars._progress.get_time = lambda: now
    for done in range(3):
        bars.show("the staircase", done, 5)
        now += 40
    [task] = bars._progress.tasks
    assert str(Remaining().render(task)) == "2:00 left"
