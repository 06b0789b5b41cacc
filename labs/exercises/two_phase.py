"""Exercise 6: recover prepared transactions after a crash: which to commit, which to abort?

    def recover(prepared, decisions, finish): ...

Each checkpoint of a job is published by two transactions. The job died. `prepared` is the list of transactions that
are open now, each with transactional_id, producer_id and epoch. `decisions` is the list of decisions that were
recorded, each with number, commit (True or False) and transactions (a tuple of the same kind of values). A decision
stays in the log until the job knows that it was carried out. `finish(transaction, commit)` commits a transaction
(True) or aborts it (False).

Afterwards no transaction may be open; what was decided must be visible; and what was not decided must not be:
the job will read its input again, and publish it again.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from labs.exercises.checker.crash_points import Crash
from labs.exercises.checker.rounds import DeadCheckpoint, DeadJob, History, conclude
from labs.exercises.checker.scenario import Exercise, Finding, Lab, Scenario


def recovered(*checkpoints: DeadCheckpoint, kills: tuple[str, ...] = ()) -> Callable[[Lab, Scenario], Finding]:
    """Return a judge that lets the code recover, after kills at these points, and then lets the job go on."""

    def judge(lab: Lab, scenario: Scenario) -> Finding:
        began, job = time.time(), DeadJob(lab, checkpoints)
        runs = []
        for crash in [*(Crash(point) for point in kills), None]:
            runs.append(lab.process.run("recover", job.tools(), began, crash))
            if runs[-1].ending != "killed":
                break
        try:
            left = job.go_on() if runs[-1].well else ""
            hidden = f"still open, and in every reader's way: {left}" if left else ""
            return conclude(scenario, job, History(runs), (), began, needs_kill=bool(kills), hidden=hidden)
        finally:
            job.clear_up()

    return judge


DECIDED, REFUSED, UNDECIDED = DeadCheckpoint("b", True), DeadCheckpoint("r", False), DeadCheckpoint("u", None)

EXERCISE = Exercise(
    name="two_phase",
    task="Recover prepared transactions after a crash: which to commit, which to abort?",
    entry="labs.exercises.checker.calls:with_prepared",
    seconds=20,
    scenarios=(
        Scenario(
            "decided or not",
            "The job died with one checkpoint decided, and one prepared only.",
            recovered(DECIDED, UNDECIDED),
            smoke=True,
        ),
        Scenario(
            "decided to abort",
            "One decision says commit, one says abort.",
            recovered(DECIDED, REFUSED),
        ),
        Scenario(
            "half finished",
            "The job died when it had committed one of the two transactions of a decision.",
            recovered(DeadCheckpoint("h", True, finished=1), UNDECIDED),
        ),
        Scenario(
            "the same name again",
            "A decision is carried out and still in the log; the next checkpoint has the same transactional ids.",
            recovered(DeadCheckpoint("s", True, finished=2), DeadCheckpoint("s", None)),
        ),
        Scenario(
            "killed while it recovers",
            "SIGKILL of your code after its first finish, twice; it is started again.",
            recovered(DECIDED, UNDECIDED, REFUSED, kills=("after finish", "after finish")),
        ),
    ),
    hints={
        "lost": "A decision to commit was recorded, but its results are not visible. Others rely on a recorded "
        "decision, however many of its transactions are finished already: carry it out to the end.",
        "doubled": "A transaction was committed without a decision, and the job published its results again. A "
        "transaction without a decision must be aborted: presumed abort.",
        "doubled/decided to abort": "A decision was found, but what does it say? Look at decision.commit.",
        "doubled/the same name again": "The decision is about an older transaction of the same name. A transaction is "
        "known by all three values: transactional_id, producer_id and epoch.",
        "hidden": "A transaction that stays open hides all that comes behind it from read_committed readers: finish "
        "every transaction in `prepared`, one way or the other.",
        "crashed: FinishFailed": "finish() was called for a transaction that is not open any more, or had ended "
        "otherwise. What is open now is in `prepared`, and only that can be finished.",
        "nothing done": "Begin with a loop over `prepared`, and call finish(transaction, True or False) for each.",
    },
)
