"""Runs the student's code in rounds: kills it at exact points, restarts it each time, lets it finish, and judges.

Guarantee: a kill is a SIGKILL of the student's process when it reaches a named point for the nth time; a seed gives n.
The auditor judges what is then in Kafka, in the database or in the outside world. The trials of the Kafka exercises
share a source topic, and each has a fresh target for its results. A killed two-phase job leaves prepared transactions
in a real Kafka, and a log of decisions.

In the Spark exercises each scenario is one round of the query. The same Spark serves the next scenario, too, since a
Spark takes seconds to start. A SIGKILL in a round also ends its Spark; then a new Spark continues from the checkpoint.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import sqlite3
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from labs.equipment.plain_text import one_line
from labs.equipment.topics import create_topic
from labs.equipment.waiting import eventually
from labs.evidence.auditor.audit import Anomaly, Audit, Verdict, audit
from labs.evidence.auditor.expected import count_by_window
from labs.evidence.auditor.observed import Key, Reading, Result
from labs.evidence.readers.results import read_results
from labs.evidence.readers.transactions import settle
from labs.exercises.checker.crash_points import Crash
from labs.exercises.checker.report import timeline
from labs.exercises.checker.scenario import DOUBLED, HIDDEN, LOST, WRONG, Finding, Grade, Lab, Scenario, Trial
from labs.exercises.checker.student_process import Run
from labs.pipeline.log.generate import classroom
from labs.pipeline.records import parse_result_value, result_value, source_value
from labs.pipeline.two_phase.coordinator import DecisionLog
from labs.pipeline.two_phase.end_transaction import finish, lingering
from labs.pipeline.two_phase.prepared import PreparedTransaction, PreparingProducer

EXAMPLES = 3
LATEST = 4  # a kill strikes at the first to fourth time that its point is reached


@dataclass(frozen=True)
class History:
    """The runs of one scenario; the last one returned, or failed."""

    runs: list[Run]

    @property
    def kills(self) -> int:
        return sum(event["kind"] == "kill" for run in self.runs for event in run.events)

    @property
    def start(self) -> int:
        """Return in which start of the code, counted from 1, the last run ended; a Spark run has several starts."""
        undisturbed = sum(run.ending == "returned" for run in self.runs[:-1])
        return 1 + self.kills + undisturbed

    @property
    def events(self) -> list[tuple[int, dict[str, Any]]]:
        """Every event with the number of its run, from 1."""
        return [(number, event) for number, run in enumerate(self.runs, start=1) for event in run.events]


def undisturbed(make: Callable[[Lab], Trial], function: str, name: str = "no crash") -> Scenario:
    """Return the scenario that runs the code to its end, and then, if that went well, once more, without any crash."""

    def judge(lab: Lab, scenario: Scenario) -> Finding:
        began, trial = time.time(), make(lab)
        done = [lab.process.run(function, trial.tools(), began)]
        lab.quiet_runs[function] = done[0]
        if done[0].well and not _wrong(trial):
            done.append(lab.process.run(function, trial.tools(), began))
        return conclude(scenario, trial, History(done), (), began)

    return Scenario(name, "Runs to the end of the topic, and is then started once more.", judge, smoke=True)


def killed(
    make: Callable[[Lab], Trial],
    function: str,
    point: str,
    rounds: int = 3,
    allowed: Collection[str] = (),
    instead: str | None = None,
) -> Callable[[Lab, Scenario], Finding]:
    """Return a judge that kills the code at `point` in each of the rounds, and then lets it finish.

    `instead` is the point for code that never reaches the first one.
    """

    def judge(lab: Lab, scenario: Scenario) -> Finding:
        began, trial = time.time(), make(lab)
        at, quiet = point, lab.quiet_runs.get(function)
        if quiet and instead and not quiet.reached(point):
            at = instead
        latest = max(1, min(LATEST, (quiet.reached(at) if quiet else 1) // (rounds + 1)))
        random, done = Random(f"{lab.seed} {scenario.name}").random, []
        shuffled = sorted(range(1, latest + 1), key=lambda _: random())  # all differ, if there are enough
        for number in range(rounds):
            done.append(lab.process.run(function, trial.tools(), began, Crash(at, shuffled[number % latest])))
            if done[-1].ending != "killed":
                break
        if done[-1].ending == "killed":
            done.append(lab.process.run(function, trial.tools(), began))
        return conclude(scenario, trial, History(done), allowed, began, needs_kill=True)

    return judge


def scenarios_of(make: Callable[[Lab], Trial], function: str, *kills: tuple[str, str, str]) -> tuple[Scenario, ...]:
    """Return the scenario without a crash, and one for each kill: where it is, its crash point, and when that is."""

    def scenario(where: str, point: str, when: str) -> Scenario:
        judge = killed(make, function, point, instead="after consumer.poll")
        return Scenario(f"killed {where}", f"SIGKILL {when}, three times.", judge)

    return undisturbed(make, function), *(scenario(*kill) for kill in kills)


def conclude(
    scenario: Scenario,
    trial: Trial,
    history: History,
    allowed: Collection[str],
    began: float,
    needs_kill: bool = False,
    hidden: str = "",
) -> Finding:
    """Judge the results after the last run. `hidden` says what hides results from a reader, if anything does."""
    last = history.runs[-1]
    finding = partial(scenario.finding, began)
    if not last.well:
        return ended_badly(scenario, history, began)
    if history.runs[0].did_nothing:
        return finding(grade=Grade.UNKNOWN, symptom="nothing done", detail="the function did nothing")
    try:
        observed = trial.results()
    except ValueError as error:
        detail, lines = f"your results cannot be read: {one_line(str(error), 1_000)}", timeline(history.events)
        return finding(grade=Grade.FAILED, symptom=WRONG, detail=detail, timeline=lines)
    verdict = audit(trial.expected, observed)
    lost, doubled, wrong = _differences(trial, observed)
    found = {LOST: bool(lost), DOUBLED: bool(doubled), WRONG: bool(wrong)}
    symptoms = [HIDDEN] if hidden else [name for name, there in found.items() if there and name not in allowed]
    if not symptoms and verdict.counts[Anomaly.HANGING_TRANSACTION]:
        symptoms, hidden = [HIDDEN], "a transaction is still open and hides all records behind it"
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
        who = "Spark stopped the query:" if last.error == "StreamingQueryException" else "your code raised"
        detail = f"{who} {one_line(last.detail, 500)}, {when}"
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
    """Return the results that are lost or too small, those doubled or too large, and the unexpected ones."""
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
    return kills + delivered(verdict)


def delivered(verdict: Audit) -> str:
    """Return in words how many results are there as they should be."""
    return f"{verdict.delivered} of {verdict.expected} results are there with the right count"


NUMBERS = itertools.count(1)
A_MOMENT = 3.0  # seconds: Kafka needs milliseconds to end a transaction that was committed


def results_of_a_log(windows: int = 4, clients: int = 5) -> dict[Key, int]:
    """Return the results that the exercises pass on: (window start, IP) -> count."""
    return dict(sorted(count_by_window(classroom(windows=windows, clients=clients)).items()))


def source_topic(lab: Lab, name: str, values: Sequence[bytes]) -> str:
    """Return a topic of one partition with these records, made once per check: record n has offset n."""
    if name not in lab.kept:
        topic = create_topic(lab.servers, f"{name}-{uuid.uuid4().hex[:8]}", partitions=1)
        producer = Producer({"bootstrap.servers": lab.servers, "enable.idempotence": True, "log_level": 0})
        for value in values:
            producer.produce(topic, value, partition=0)
        if producer.flush(30):
            raise RuntimeError(f"the source topic {topic} could not be filled within 30 s: is the broker alive?")
        lab.kept[name] = topic
    return lab.kept[name]


class KafkaTrial:
    """A trial whose code reads `values` from a topic. Subclasses say where the results are."""

    source = "source"

    def __init__(self, lab: Lab, values: Sequence[bytes], expected: Mapping[Key, int], keys: Sequence[Key]):
        self.expected, self._keys = expected, keys
        self.number = next(NUMBERS)
        self.directory = lab.directory / f"trial-{self.number}"
        self.directory.mkdir()
        self.servers, self.topic = lab.servers, source_topic(lab, self.source, values)
        self.group = f"{self.topic}-{self.number}"
        eventually(self._coordinator_is_there)

    def _coordinator_is_there(self) -> bool:
        """Ask for the group's offset.

        A new Kafka needs time to make the group's coordinator; the time limit of the code should not include that.
        """
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": self.group, "log_level": 0})
        try:
            [found] = consumer.committed([TopicPartition(self.topic, 0)], timeout=5)
            return found.error is None
        finally:
            consumer.close()

    def tools(self) -> dict[str, Any]:
        return {"servers": self.servers, "topic": self.topic, "group": self.group}

    def records_of(self, key: Key) -> list[int]:
        return [number for number, each in enumerate(self._keys) if each == key]


def read_published(servers: str, topic: str) -> Reading:
    """Return the results that read_committed readers see. Raises ValueError for a record that is no result.

    The code has ended, so nobody will commit a transaction that is still open after a moment.
    """
    return read_results(servers, topic, patience=A_MOMENT)


def read_outside(path: Path) -> Iterable[Result]:
    """Yield the effects of `handle` in the outside world. Raises ValueError."""
    for line in path.read_text().splitlines() if path.exists() else ():
        yield Result(*parse_result_value(json.loads(line)["value"]))


def read_table(path: Path, table: str) -> list[Result]:
    """Return the rows of a SQLite table with the columns window_start, ip and count. Raises ValueError."""
    connection = sqlite3.connect(path)
    try:
        rows = connection.execute(f"SELECT window_start, ip, count FROM {table}").fetchall()
    except sqlite3.Error as error:
        raise ValueError(f"table {table}: {error}") from error
    finally:
        connection.close()
    try:
        return [Result(*row) for row in rows]
    except TypeError as error:
        raise ValueError(f"table {table} has a row that is no result: {error}") from error


PARTICIPANTS = 2
TIMEOUT_MS = 900_000
Rows = tuple[tuple[Key, int], ...]  # results, each with its count


@dataclass(frozen=True)
class DeadCheckpoint:
    """What the dead job had done for one checkpoint.

    `decided`: True to commit, False to abort, None for no decision yet; `finished`: how many of its transactions it had
    finished. Checkpoints with the same `name` used the same transactional ids, one after the other.
    """

    name: str
    decided: bool | None
    finished: int = 0


class DeadJob:
    """A Kafka topic, transactions and a decision log, as a job that was killed leaves them."""

    def __init__(self, lab: Lab, checkpoints: tuple[DeadCheckpoint, ...]):
        self.servers, self.prefix = lab.servers, f"job-{uuid.uuid4().hex[:6]}"
        self.topic = create_topic(lab.servers, f"{self.prefix}-results", partitions=1)
        self.log = DecisionLog(lab.directory / self.prefix)
        self.expected: Mapping[Key, int] = results_of_a_log(windows=len(checkpoints), clients=4)
        rows = tuple(self.expected.items())
        windows = [rows[n : n + 4] for n in range(0, len(rows), 4)]
        self._again: list[Rows] = []
        for number, (checkpoint, rows) in enumerate(zip(checkpoints, windows, strict=True), start=1):
            self._leave(number, checkpoint, rows)

    def _leave(self, number: int, checkpoint: DeadCheckpoint, rows: Rows) -> None:
        transactions = [
            self._prepare(f"{self.prefix}-{checkpoint.name}-{participant}", rows[participant::PARTICIPANTS])
            for participant in range(PARTICIPANTS)
        ]
        if checkpoint.decided is not None:
            self.log.record(number, checkpoint.decided, transactions)
        for transaction in transactions[: checkpoint.finished]:
            finish(transaction, bool(checkpoint.decided), self.servers)
        if not checkpoint.decided:
            self._again.append(rows)

    def _prepare(self, transactional_id: str, rows: Rows) -> PreparedTransaction:
        producer = PreparingProducer(
            transactional_id, bootstrap_servers=self.servers, transaction_timeout_ms=TIMEOUT_MS
        )
        with producer:
            for key, count in rows:
                producer.send(self.topic, result_value(*key, count))
            return producer.prepare()

    def tools(self) -> dict:
        return {"servers": self.servers, "prefix": self.prefix, "decisions": str(self.log.directory)}

    def go_on(self) -> str:
        """Do what the job does next: publish again what was not published. Return the open transactions, in words."""
        settle(self.servers, self.topic)
        left = lingering(self.servers, self.prefix)
        for number, rows in enumerate(self._again):
            again = self._prepare(f"again-{self.prefix}-{number}", rows)
            finish(again, True, self.servers)
        settle(self.servers, self.topic)
        return ", ".join(f"{each.transactional_id} (epoch {each.epoch})" for each in left)

    def results(self) -> list[Result]:
        # Nobody ends a transaction that `go_on` has left open.
        return read_results(self.servers, self.topic, patience=0)

    def records_of(self, key: Key) -> list[int]:
        return []

    def clear_up(self) -> None:
        """Abort all open transactions."""
        for transaction in lingering(self.servers, self.prefix):
            finish(transaction, False, self.servers)


Access = tuple[int, str]


@dataclass(frozen=True)
class Round:
    """One run of the query: its input, the expected results, the batch size, and the faults.

    `also` checks the run and returns a complaint, or nothing; `cause` returns the code's mistake, for a hint.
    """

    accesses: list[Access]
    expected: Mapping[Key, int]
    records_per_batch: int
    faults: tuple[tuple[str, int, str], ...] = ()
    also: Callable[[Run], str] = field(default=lambda run: "", compare=False)
    cause: Callable[[Run], str] = field(default=lambda run: "", compare=False)

    @property
    def kills(self) -> bool:
        return any(action == "kill" for _, _, action in self.faults)


class SparkTrial:
    """The topics and the checkpoint of one round."""

    def __init__(self, lab: Lab, name: str, round_: Round):
        values = [source_value(*access) for access in round_.accesses]
        self.servers, self.name, self.round, self.expected = lab.servers, name, round_, round_.expected
        self.source = source_topic(lab, f"log-{abs(hash(tuple(round_.accesses))):x}", values)
        self.target = create_topic(lab.servers, f"results-{uuid.uuid4().hex[:8]}", partitions=1)
        self.checkpoint = str(lab.directory / f"checkpoint-{uuid.uuid4().hex[:8]}")

    def tools(self) -> dict[str, Any]:
        return {
            "servers": self.servers,
            "name": self.name,
            "source": self.source,
            "target": self.target,
            "checkpoint": self.checkpoint,
            "records_per_batch": self.round.records_per_batch,
            "faults": self.round.faults,
        }

    def results(self) -> list[Result]:
        return read_published(self.servers, self.target)

    def records_of(self, key: Key) -> list[int]:
        return []


def spark_scenarios(function: str, rounds: list[tuple[str, str, Round]]) -> tuple[Scenario, ...]:
    """Return a scenario for each (name, what is done, round). The first is the smoke test."""

    def scenario(name: str, done: str, round_: Round, smoke: bool) -> Scenario:
        def judge(lab: Lab, scenario: Scenario) -> Finding:
            began, trial = time.time(), SparkTrial(lab, name, round_)
            runs = [lab.process.run(function, trial.tools(), began)]
            if round_.kills and runs[0].ending == "killed":
                runs.append(lab.process.run(function, {**trial.tools(), "faults": ()}, began))
            finding = conclude(scenario, trial, History(runs), (), began, needs_kill=bool(round_.faults))
            complaint = round_.also(runs[-1]) if runs[-1].well else ""
            if complaint and finding.grade is Grade.PASSED:
                lines = [*timeline(History(runs).events), ("at the end", complaint)]
                finding = dataclasses.replace(
                    finding, grade=Grade.FAILED, symptom="remembers", detail=complaint, timeline=lines
                )
            if finding.failed and not finding.cause:
                finding = dataclasses.replace(finding, cause=round_.cause(runs[0]))
            return finding

        return Scenario(name, done, judge, smoke)

    return tuple(scenario(name, done, round_, n == 0) for n, (name, done, round_) in enumerate(rounds))
