"""The timeline shows what tells why, in order, and no more than fits on a screen."""

from __future__ import annotations

from labs.exercises.checker.report import GAP, LONGEST, RESTART, timeline


def events(*runs: list[str]) -> list[tuple[int, dict]]:
    """Make events of what was told: SIGKILL is a kill, and the rest are calls."""
    return [
        (number, {"when": 0.1 * n, "kind": "kill" if what.startswith("SIGKILL") else "call", "what": what})
        for number, run in enumerate(runs, start=1)
        for n, what in enumerate(run)
    ]


def told(lines) -> list[str]:
    return [what for _, what in lines]


KILLED = events(
    [*(f"poll() → record {n}" for n in range(6)), "commit()", "SIGKILL after commit()"],
    ["poll() → record 6", "handle(record 6)", *(f"poll() → record {n}" for n in range(7, 20))],
)


def test_without_a_record_it_shows_what_is_around_the_kill():
    lines = told(timeline(KILLED))
    assert lines == [
        *(f"poll() → record {n}" for n in (3, 4, 5)),
        "commit()",
        "SIGKILL after commit()",
        RESTART[1],
        "poll() → record 6",
        "handle(record 6)",
    ]


def test_with_a_record_it_shows_that_record_and_the_kill_after_it_and_marks_the_gap():
    lines = told(timeline(KILLED, [1]))
    assert lines[:4] == [f"poll() → record {n}" for n in range(4)]
    assert "SIGKILL after commit()" in lines
    assert "poll() → record 12" not in lines


def test_record_1_is_not_record_12():
    lines = told(timeline(events([f"handle(record {n})" for n in range(30)]), [1]))
    assert "handle(record 12)" not in lines


def test_record_is_found_by_what_the_lines_call_it():
    """As exercise 9 does, whose records are known by two numbers."""
    arrivals = events([f"number {n} of producer {id} arrives" for n in range(15) for id in (7, 8)])
    lines = told(timeline(arrivals, ["number 1 of producer 8"]))
    assert lines == [
        "number 1 of producer 7 arrives",
        "number 1 of producer 8 arrives",
        "number 2 of producer 7 arrives",
        "number 2 of producer 8 arrives",
    ]


def test_gap_is_marked():
    assert GAP[1] in told(timeline(KILLED, [15]))


def test_what_is_too_long_is_cut_with_a_mark():
    lines = timeline(events([f"handle(record {n})" for n in range(100)]), range(100))
    assert len(lines) == LONGEST
    assert lines[-1] == GAP


def test_bad_end_is_the_last_line():
    end = (1, {"when": 1.0, "kind": "end", "what": "KeyError: 'boom'\nmore", "ending": "crashed"})
    assert told(timeline([*events(["poll() → record 0"]), end], ends_badly=True)) == [
        "poll() → record 0",
        "KeyError: 'boom'",
    ]


def test_nothing_happened_is_an_empty_timeline():
    assert timeline([]) == []


def test_no_run_follows_another_without_the_kill_between_them():
    runs = [
        [f"poll() → record {n}", "handle()", "commit()", "tidy up", "go on", "SIGKILL after commit()"] for n in range(4)
    ]
    lines = told(timeline(events(*runs), [0, 3]))
    for number, line in enumerate(lines):
        if line == RESTART[1]:
            assert lines[number - 1].startswith("SIGKILL"), lines
    assert lines.count(RESTART[1]) == 3


def test_crashes_behind_a_cut_are_counted():
    runs = [[*(f"handle(record {n})" for n in range(30)), "SIGKILL after handle()"] for _ in range(3)]
    lines = timeline(events(*runs), range(30))
    assert len(lines) == LONGEST
    assert lines[-1][1] == "… 3 more of these crashes, and what follows"
