"""The capstone: a sink of one's own, alone on a real Kafka, under faults that nobody has seen before.

    def publish(rows, batch_id, kafka): ...

It is the function of the exercise `exactly_once_sink`, in a file of its own. A job of its own process calls it, in
which `kafka.new_producer()`, `kafka.last_batch()` and `kafka.mark(batch_id, producer)` work as in lesson 07. The last
scenario is chaos, with a seed that is drawn anew for each check and stands in the report.
"""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Callable
from functools import partial

from exactly_once_kafka.points import AFTER_COMMIT, point
from labs.equipment.broker import Broker
from labs.equipment.plain_text import one_line
from labs.equipment.topics import create_topic
from labs.equipment.waiting import eventually
from labs.evidence.auditor.audit import Audit, Verdict, audit
from labs.evidence.auditor.expected import count_by_window
from labs.evidence.readers.results import read_results
from labs.exercises.checker.rounds import delivered
from labs.exercises.checker.scenario import Exercise, Finding, Grade, Lab, Scenario
from labs.faults.chaos_injectors import ChaosPlan
from labs.faults.fault_points import Fault
from labs.faults.job import JobFailed, JobProcess
from labs.pipeline.log.generate import classroom
from labs.pipeline.log.replay import close_windows, replay
from labs.pipeline.records import SINK_TOPIC, SOURCE_TOPIC
from labs.runs.chaos import run_chaos

MINUTES = 3.0  # of chaos
PATIENCE = 300.0  # seconds for a job: its Spark has to start on a busy machine
STRUCK = 5  # the batch in which a fault strikes: it publishes the 8 results of a window
LINES = 12  # of what happened


class NotStruck(RuntimeError):
    """The student's sink never came to the point at which it was to be struck."""


Step = tuple[str, str]  # when, what
StartJob = Callable[..., JobProcess]
Strike = Callable[[StartJob, list[Step]], object]


def _on_a_log(strike: Strike, lab: Lab, scenario: Scenario) -> Finding:
    """Let `strike` run jobs with the student's sink over a log of six windows, and audit what they have published."""
    began, accesses, steps = time.time(), list(classroom(windows=6, clients=8)), list[Step]()
    checkpoint = lab.directory / uuid.uuid4().hex[:8]
    with Broker() as kafka:
        for topic in (SOURCE_TOPIC, SINK_TOPIC):
            create_topic(kafka.bootstrap_servers, topic, partitions=1)
        close_windows(replay(accesses, kafka.bootstrap_servers).last_time_ms, kafka.bootstrap_servers)
        start = partial(
            JobProcess,
            bootstrap_servers=kafka.bootstrap_servers,
            checkpoint=checkpoint,
            sink=lab.process.file,
            records_per_batch=80,
        )
        try:
            strike(start, steps)
        except NotStruck as error:
            return scenario.finding(began, grade=Grade.UNKNOWN, symptom="", detail=str(error), timeline=steps)
        except (JobFailed, TimeoutError) as error:
            return scenario.finding(
                began,
                grade=Grade.FAILED,
                symptom="crashed",
                detail=str(error),
                restarted=len(steps) > 1,
                timeline=[*steps, ("then", str(error))],
            )
        try:
            results = read_results(kafka.bootstrap_servers, SINK_TOPIC)
        except ValueError as error:
            said = f"your results cannot be read: {one_line(str(error), 1_000)}"
            return scenario.finding(began, grade=Grade.FAILED, symptom="wrong", detail=said, timeline=steps[-LINES:])
        return _judged(scenario, began, audit(count_by_window(accesses), results), steps)


def _judged(scenario: Scenario, began: float, verdict: Audit, steps: list[Step], said: str = "") -> Finding:
    grade = {Verdict.VALID: Grade.PASSED, Verdict.INVALID: Grade.FAILED}.get(verdict.verdict, Grade.UNKNOWN)
    symptom = "lost" if verdict.lost else "doubled" if verdict.duplicated else "wrong"
    return scenario.finding(
        began,
        grade=grade,
        symptom="" if grade is Grade.PASSED else symptom,
        detail="; ".join(filter(None, [said, delivered(verdict), verdict.reason])),
        lost=verdict.lost,
        doubled=verdict.duplicated,
        examples=[text for texts in verdict.examples.values() for text in texts][:3],
        timeline=steps[-LINES:] if grade is Grade.FAILED else [],
    )


def _to_its_end(start: StartJob, steps: list[Step], *faults: Fault) -> None:
    with start(faults) as job:
        try:
            job.wait(PATIENCE)
        finally:
            steps.append(
                (f"job {len(steps) + 1}", f"{'struck' if faults else 'left alone'}; batches done: {job.batches_done()}")
            )


def _killed_after_commit(start: StartJob, steps: list[Step]) -> None:
    fault = Fault(AFTER_COMMIT, STRUCK, "kill")
    try:
        _to_its_end(start, steps, fault)
    except JobFailed as error:
        if "SIGKILL" not in str(error):
            raise
    else:
        raise NotStruck(f"the fault found no place to strike: batch {STRUCK} ended without kafka.commit()")
    _to_its_end(start, steps)


def _woken(start: StartJob, steps: list[Step]) -> None:
    """Freeze a driver before it takes an epoch for a batch, let another one do all the work, and wake the first."""
    with start((Fault(point("before", "fence"), STRUCK, "pause"),)) as sleeper:
        eventually(lambda: sleeper.paused or sleeper.exit_code is not None, PATIENCE)
        if not sleeper.paused:
            raise NotStruck(f"the fault found no place to strike: batch {STRUCK} called no kafka.new_producer()")
        steps.append(("job 1", f"frozen when it was about to call kafka.new_producer() for batch {STRUCK}"))
        _to_its_end(start, steps)
        sleeper.resume()
        eventually(lambda: sleeper.exit_code is not None, PATIENCE)
        steps.append(("job 1", f"woken: {sleeper.last_line()}"))


def _chaos(lab: Lab, scenario: Scenario) -> Finding:
    began, seed = time.time(), secrets.randbelow(1_000_000)
    plan = ChaosPlan(seed=seed, minutes=MINUTES, sink=str(lab.process.file))
    report = run_chaos(plan, lab.directory / "chaos")
    steps = [(f"{strike.began:.1f} s", f"{strike.kind} {strike.detail}".strip()) for strike in report.strikes]
    return _judged(scenario, began, report.audit, steps, said=f"seed {seed}, {len(report.strikes)} faults")


def _scenario(name: str, action: str, strike: Strike, smoke: bool = False) -> Scenario:
    return Scenario(name, action, partial(_on_a_log, strike), smoke)


EXERCISE = Exercise(
    name="capstone",
    task="A sink of your own, in a job of its own, under faults that nobody has seen before.",
    entry="",  # a job calls it
    seconds=300,
    own_kafka=True,
    scenarios=(
        _scenario("no fault", "Counts a log to its end.", _to_its_end, smoke=True),
        _scenario(
            "killed after commit",
            f"SIGKILL of the job directly after batch {STRUCK} committed; another one is started.",
            _killed_after_commit,
        ),
        _scenario(
            "a driver wakes up",
            f"A job is frozen just before kafka.new_producer() of batch {STRUCK}, another one does its work, and the "
            "first wakes up.",
            _woken,
        ),
        Scenario(
            "chaos",
            f"{MINUTES:g} minutes of kills, pauses, cut connections and late commits, from a seed drawn at random.",
            _chaos,
        ),
    ),
    hints={
        "crashed/no fault": "Look at the last line of the job. If it names the state store, your function did not "
        "execute the batch: read its rows, or write them to noop. If it names kafka.mark: the mark is a part of the "
        "producer's open transaction, so kafka.mark needs the producer.",
        "lost/no fault": "Nothing was struck, and results are missing: does each row reach produce(), and is each "
        "transaction committed?",
        "doubled/killed after commit": "The batch was committed, and its repetition was too. Leave a mark in the "
        "transaction, and look at it before you write.",
        "doubled/a driver wakes up": "The sleeper came back with an old batch and took a new epoch. A mark that it "
        "read before is old by then, so call kafka.last_batch() after kafka.new_producer(). The mark is then that of "
        "a LATER batch: raise an error.",
        "doubled": "In which order do you take the epoch and read the mark? And what does a driver do that finds a "
        "later batch than its own?",
        "lost": "What does your sink take for done? Only its own batch is: `last_batch() == batch_id`.",
    },
)
