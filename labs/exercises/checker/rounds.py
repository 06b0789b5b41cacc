"""Rounds of the same run: killed at exact points, restarted each time, and at last left to finish; then judged.

Guarantee: a kill is a SIGKILL of the student's process at a named point, reached for a seeded number of times;
what is judged is what lies in Kafka, in the database or in the outside world afterwards, by the auditor.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from labs.equipment.plain_text import one_line
from labs.evidence.auditor.audit import Anomaly, Audit, Result, Verdict, audit
from labs.evidence.auditor.observed import Key
from labs.exercises.checker.crash_points import Crash
from labs.exercises.checker.finding import DOUBLED, HIDDEN, LOST, WRONG, Finding, Grade
from labs.exercises.checker.scenario import Lab, Scenario, Trial
from labs.exercises.checker.student_process import Run
from labs.exercises.checker.timeline import timeline

EXAMPLES = 3
LATEST = 4  # a kill strikes at one of the first so many times that its point is reached


@dataclass(frozen=True)
class History:
    """The runs of one scenario; the last one returned, or ended as it should not have."""

    runs: list[Run]

    @property
    def kills(self) -> int:
        return sum(event["kind"] == "kill" for run in self.runs for event in run.events)

    @property
    def start(self) -> int:
        """Return the how manyeth start of the code the last run's end belongs to, from 1; a Spark run has several."""
        undisturbed = sum(run.ending == "returned" for run in self.runs[:-1])
        return 1 + self.kills + undisturbed

    @property
    def events(self) -> list[tuple[int, dict[str, Any]]]:
        """Every event with the number of its run, from 1."""
        return [(number, event) for number, run in enumerate(self.runs, start=1) for event in run.events]


def undisturbed(
    make: Callable[[Lab], Trial], function: str, runs: int = 2, allowed: Collection[str] = ()
) -> Callable[[Lab, Scenario], Finding]:
    """Return a judge that runs the code to its end, and then again, with no crash at all."""

    def judge(lab: Lab, scenario: Scenario) -> Finding:
        began, trial, done = time.time(), make(lab), []
        for number in range(runs):
            done.append(lab.process.run(function, trial.tools(), began))
            if number == 0:
                lab.quiet_runs[function] = done[0]
            if not done[-1].well or (runs > 1 and number == 0 and _wrong(trial)):
                break
        return conclude(scenario, trial, History(done), allowed, began)

    return judge


def killed(
    make: Callable[[Lab], Trial],
    function: str,
    point: str,
    rounds: int = 3,
    allowed: Collection[str] = (),
    instead: str | None = None,
) -> Callable[[Lab, Scenario], Finding]:
    """Return a judge that kills the code at `point` in each of the rounds, and then lets it finish.

    `instead` is the point for code that never comes to the first one.
    """

    def judge(lab: Lab, scenario: Scenario) -> Finding:
        began, trial = time.time(), make(lab)
        at, quiet = point, lab.quiet_runs.get(function)
        if quiet and instead and not quiet.reached(point):
            at = instead
        latest = max(1, min(LATEST, (quiet.reached(at) if quiet else 1) // (rounds + 1)))
        random, done = Random(f"{lab.seed} {scenario.name}").random, []
        shuffled = sorted(range(1, latest + 1), key=lambda _: random())  # each differs, as long as there are enough
        for number in range(rounds):
            done.append(lab.process.run(function, trial.tools(), began, Crash(at, shuffled[number % latest])))
            if done[-1].ending != "killed":
                break
        if done[-1].ending == "killed":
            done.append(lab.process.run(function, trial.tools(), began))
        return conclude(scenario, trial, History(done), allowed, began, needs_kill=True)

    return judge


def conclude(
    scenario: Scenario,
    trial: Trial,
    history: History,
    allowed: Collection[str],
    began: float,
    needs_kill: bool = False,
    hidden: str = "",
) -> Finding:
    """Judge what lies there after the last run. `hidden` says what a reader cannot see past, if anything."""
    last = history.runs[-1]
    finding = partial(scenario.finding, began)
    if not last.well:
        return ended_badly(scenario, history, began)
    if history.runs[0].did_nothing:
        return finding(grade=Grade.UNKNOWN, symptom="nothing done", detail="the function did nothing")
    try:
        observed = trial.results()
    except ValueError as error:
        detail, lines = f"what you wrote cannot be read: {one_line(str(error), 1_000)}", timeline(history.events)
        return finding(grade=Grade.FAILED, symptom=WRONG, detail=detail, timeline=lines)
    verdict = audit(trial.expected, observed)
    lost, doubled, wrong = _differences(trial, observed)
    found = {LOST: bool(lost), DOUBLED: bool(doubled), WRONG: bool(wrong)}
    symptoms = [HIDDEN] if hidden else [name for name, there in found.items() if there and name not in allowed]
    if not symptoms and verdict.counts[Anomaly.HANGING_TRANSACTION]:
        symptoms, hidden = [HIDDEN], "a transaction is still open: nobody can read what lies behind it"
    if needs_kill and not history.kills:
        missed = "the fault found no place to strike: the code never came to that point"
        grade, detail = (Grade.FAILED if symptoms else Grade.UNKNOWN), missed
    else:
        grade, detail = Grade.FAILED if symptoms else Grade.PASSED, hidden or _numbers(verdict, history)
    if grade is Grade.PASSED and verdict.verdict is Verdict.UNKNOWN:
        grade, detail = Grade.UNKNOWN, verdict.reason
    keys = {LOST: lost, DOUBLED: doubled, WRONG: wrong, HIDDEN: lost}[symptoms[0]] if symptoms else []
    examples = [text for texts in verdict.examples.values() for text in texts] if symptoms else []
    return finding(
        grade=grade,
        symptom=symptoms[0] if symptoms else "",
        detail=detail,
        lost=len(lost),
        doubled=len(doubled),
        examples=examples[:EXAMPLES],
        timeline=timeline(history.events, trial.records_of(keys[0]) if keys else []) if symptoms else [],
    )


def ended_badly(scenario: Scenario, history: History, began: float) -> Finding:
    """Return the finding on code that did not return: how its last run ended, in which of its starts, and where."""
    last, start = history.runs[-1], history.start
    when = "in its first run" if start == 1 else f"in start {start}, after {_crashes(history.kills)}"
    if start > 1 and not history.kills:
        when = "when it was started once more; nothing had crashed"
    if last.error:
        detail = f"your code raised {one_line(last.detail, 500)}, {when}"
    else:
        detail = one_line(last.detail, 500) + (f", {when}" if last.judged and start > 1 else "")
    output = "".join(f"\n  | {one_line(line)}" for line in last.output.splitlines())
    return scenario.finding(
        began,
        grade=Grade.FAILED if last.judged else Grade.UNKNOWN,
        symptom=last.ending,
        detail=detail + (f"\nits last output:{output}" if output else ""),
        cause=last.error,
        restarted=start > 1,
        timeline=timeline(history.events, [], ends_badly=True),
    )


def _crashes(number: int) -> str:
    return "1 crash" if number == 1 else f"{number} crashes"


def _differences(trial: Trial, observed: list[Result]) -> tuple[list[Key], list[Key], list[Key]]:
    """Return the results that are lost or too small, those doubled or too large, and those that nobody expects."""
    times = Counter((result.window_start, result.ip) for result in observed)
    counts = {(result.window_start, result.ip): result.count for result in observed}
    lost = [key for key, count in trial.expected.items() if counts.get(key, 0) < count]
    doubled = [key for key, count in trial.expected.items() if times[key] > 1 or counts.get(key, 0) > count]
    return lost, doubled, [key for key in counts if key not in trial.expected]


def _wrong(trial: Trial) -> bool:
    try:
        return any(_differences(trial, trial.results()))
    except ValueError:
        return True


def _numbers(verdict: Audit, history: History) -> str:
    kills = f"{_crashes(history.kills)}; " if history.kills else ""
    return f"{kills}{verdict.delivered} of {verdict.expected} results are there with the right count"
