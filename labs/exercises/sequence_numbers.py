"""Exercise 9: the broker's half of an idempotent producer.

    def append(log, record): ...

A record arrives at the broker: `record.producer_id` is its producer, `record.sequence` its number among that producer's
records, from 0, and `record.value` its content, `epoch_millis,ip`; two equal values are two requests. A producer that
gets no answer sends the same record again, with the same two numbers.

`log.records()` returns the stored records, each also with its `offset`; `log.write(record)` stores one and returns its
offset. The function returns the offset at which the record is stored, or None to refuse it: the producer will send it
again.

Each record must be in the log once, and those of a producer in the order of their numbers, whichever answers are lost
and whenever the broker is killed.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from labs.evidence.auditor.audit import Result
from labs.evidence.auditor.expected import count_by_window
from labs.evidence.auditor.observed import Key
from labs.exercises.checker.clients import Arrival, Record, Stored, name_of, read_answers, read_log
from labs.exercises.checker.crash_points import Crash
from labs.exercises.checker.report import timeline
from labs.exercises.checker.rounds import History, conclude
from labs.exercises.checker.scenario import WRONG, Exercise, Finding, Grade, Lab, Scenario

START = 1_767_225_600_000  # 2026-01-01, in milliseconds
IPS = ("192.0.2.1", "192.0.2.1", "198.51.100.1", "192.0.2.1", "203.0.113.1", "198.51.100.1")
FIRST, SECOND = 7, 8  # producer ids
ACCESSES = [(START + n // 2 * 1000, ip) for n, ip in enumerate(IPS)]  # numbers 0 and 1 are equal
RECORDS = [
    *(Record(FIRST, n, f"{time_ms},{ip}") for n, (time_ms, ip) in enumerate(ACCESSES)),
    *(Record(SECOND, n, f"{time_ms},{ip}") for n, (time_ms, ip) in enumerate(ACCESSES[:3])),
]
OUT_OF_ORDER = "out of order"
NUMBERS = itertools.count(1)
LOST = False  # what becomes of an answer


def sent(*numbers: int, heard: bool = True) -> list[Arrival]:
    return [Arrival(number, heard) for number in numbers]


CALM = sent(0, 1, 6, 2, 7, 3, 8, 4, 5)
ONE_ANSWER_LOST = [*sent(0, 6), *sent(1, heard=LOST), *sent(1, 7, 2, 8, 3), *sent(4, heard=LOST), *sent(4, 5)]
SEVERAL_UNDER_WAY = [*sent(0), *sent(1, 2, 3, 4, 5, heard=LOST), *sent(1, 2, 3, 4, 5, 6, 7, 8)]
A_GAP = [*sent(0, 2, 1, 2, 3, 5, 4, 5, 6, 7, 8)]


def _access(record: Record | Stored) -> tuple[int, str]:
    time_ms, _, ip = record.value.partition(",")
    return int(time_ms), ip


class Sending:
    """Nine records of two producers, and a log that outlives the broker."""

    def __init__(self, lab: Lab, script: Sequence[Arrival]):
        self.expected: Mapping[Key, int] = count_by_window([*ACCESSES, *ACCESSES[:3]])
        self.directory: Path = lab.directory / f"partition-{next(NUMBERS)}"
        self.directory.mkdir()
        self._script = script

    def tools(self) -> dict[str, Any]:
        return {"directory": str(self.directory), "records": RECORDS, "script": self._script}

    def results(self) -> list[Result]:
        accesses = [_access(each) for each in self._stored()]
        return [Result(start, ip, count) for (start, ip), count in count_by_window(accesses).items()]

    def records_of(self, key: Key) -> list[str]:
        times = Counter(Record(*each[1:]) for each in self._stored())
        of_key = [each for each in RECORDS if count_by_window([_access(each)]).keys() == {key}]
        return [name_of(each) for each in of_key if times[each] != 1]

    def judged(self, finding: Finding, history: History) -> Finding:
        """If the counts are right, judge the order and the answers too."""
        if finding.grade is not Grade.PASSED:
            return finding
        stored = self._stored()

        def wrong(detail: str, records: Sequence[str], symptom: str = WRONG) -> Finding:
            lines = timeline(history.events, records)
            return dataclasses.replace(finding, grade=Grade.FAILED, symptom=symptom, detail=detail, timeline=lines)

        for producer in (FIRST, SECOND):
            numbers = [each.sequence for each in stored if each.producer_id == producer]
            if numbers != sorted(numbers):
                detail = f"the log has the numbers of producer {producer} in the order {', '.join(map(str, numbers))}"
                pair = next(pair for pair in itertools.pairwise(numbers) if pair[0] > pair[1])
                swapped = [each for each in RECORDS if each.producer_id == producer and each.sequence in pair]
                return wrong(detail, [name_of(each) for each in swapped], OUT_OF_ORDER)
        for record, problem in self._bad_answers():
            return wrong(f"{name_of(record)} {problem}", [name_of(record)])
        detail = f"{finding.detail}; {len(stored)} records in the log, each once and in its producer's order"
        return dataclasses.replace(finding, detail=detail)

    def _stored(self) -> list[Stored]:
        return read_log(self.directory)

    def _bad_answers(self) -> Iterator[tuple[Record, str]]:
        stored, answers = self._stored(), read_answers(self.directory)
        for number, record in enumerate(RECORDS):
            heard = [each.answer for each in answers if each.record == number and each.heard]
            told = [answer for answer in heard if answer is not None]
            if not told:
                yield record, "is stored, but every answer to it was a refusal"
            for answer in told:
                if not isinstance(answer, int) or isinstance(answer, bool):
                    yield record, f"was answered {answer}, which is neither an offset nor None"
                elif not 0 <= answer < len(stored) or Record(*stored[answer][1:]) != record:
                    yield record, f"is not at offset {answer}, as the answer says"


def through(script: Sequence[Arrival], crash: Crash | None = None) -> Callable[[Lab, Scenario], Finding]:
    """Return a judge that lets the records arrive as the script says, and restarts the broker where it is killed."""

    def judge(lab: Lab, scenario: Scenario) -> Finding:
        began, trial = time.time(), Sending(lab, script)
        runs = [lab.process.run("append", trial.tools(), began, crash)]
        if runs[-1].ending == "killed":
            runs.append(lab.process.run("append", trial.tools(), began))
        history = History(runs)
        finding = conclude(scenario, trial, history, (), began, needs_kill=crash is not None)
        return trial.judged(finding, history)

    return judge


EXERCISE = Exercise(
    name="sequence_numbers",
    task="What the broker does with the numbers of an idempotent producer.",
    entry="labs.exercises.checker.calls:with_log",
    seconds=5,
    scenarios=(
        Scenario("nothing is lost", "Two producers send nine records; two are equal.", through(CALM), smoke=True),
        Scenario("an answer is lost", "Twice: the record is sent again at once.", through(ONE_ANSWER_LOST)),
        Scenario(
            "several under way", "The answers to five records are lost; all are sent again.", through(SEVERAL_UNDER_WAY)
        ),
        Scenario("a gap", "Twice a record is overtaken by the next one.", through(A_GAP)),
        Scenario(
            "the broker is killed",
            "SIGKILL directly after a log.write; restarted, it gets the last five records again.",
            through(SEVERAL_UNDER_WAY, Crash("after log.write", 6)),
        ),
    ),
    hints={
        "doubled": "A record was stored again that the log has already. Which two numbers does the repetition have in "
        "common with the first?",
        "doubled/several under way": "Several can be under way at a time: the record that comes again need not be its "
        "producer's last one.",
        "doubled/the broker is killed": "The killed broker had stored the record, and its successor did not know. What "
        "does a restarted process still know? Only what is in the log.",
        "lost": "A new record was taken for a repetition. Two records with equal values are two records; and both "
        "producers begin to count at 0.",
        OUT_OF_ORDER: "A record came before the one in front of it, and you stored it. What should its number have "
        "been? Refuse it: it will be sent again.",
        "wrong/the broker is killed": "Five answers were on their way when the broker was killed, so five records come "
        "again. For which of them does the restarted process know that they are in the log?",
        "wrong": "The producer keeps the offset that it is told. What was the answer that got lost? Give it again.",
    },
    warm=True,
    own_kafka=True,
    counted="records in the log",
)
