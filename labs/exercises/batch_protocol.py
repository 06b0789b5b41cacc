"""Exercise 8: the steps of a batch, against every interleaving.

    def batch(): ...
        return ["plan", "rows", "note"]

The function returns the steps that a driver takes for each batch, in their order:

    "plan"         write into the checkpoint which records are in the batch
    "fence"        ask Kafka for an epoch of its own, which fences all older drivers and aborts what they left open
    "fence once"   the same, but only at a driver's first batch; it keeps the epoch for all that follow
    "read marker"  read which batch is marked as published: this one: skip to "note"; the one before: go on; else refuse
    "rows"         send the records
    "marker"       send the marker of this batch
    "commit"       commit what was sent since the last commit; without any, rows are visible at once
    "note"         note in the checkpoint that the batch is done

Each may be there once, "commit" more often. Each record must be visible exactly once, whoever crashes, sleeps or comes
back, and whatever the network delays, loses or delivers twice.
"""

from __future__ import annotations

from labs.exercises.checker.batch_judges import in_every_interleaving, nobody_disturbs, on_kafka, the_steps
from labs.exercises.checker.finding import Finding, Grade
from labs.exercises.checker.scenario import Exercise, Scenario


def epilogue(findings: list[Finding]) -> str:
    """Say how much was tried, and where that ends."""
    if not findings or not all(finding.grade is Grade.PASSED for finding in findings):
        return ""
    *_, model, kafka = findings
    return (
        f"What do you know now? In the model, {model.detail}, and {kafka.detail}. Two batches, two drivers and each "
        "misfortune once: within these bounds nothing was left out, which no number of crash tests can say. Beyond "
        "them it is a conjecture, and so is it that Kafka always does as the model says."
    )


EXERCISE = Exercise(
    name="batch_protocol",
    task="The steps of a batch, in an order that no interleaving breaks.",
    entry="labs.exercises.checker.calls:with_nothing",
    seconds=30,
    scenarios=(
        Scenario("the steps", "batch() is called, and its steps are read.", the_steps, smoke=True),
        Scenario("nobody disturbs", "One driver in the model, on a quiet network.", nobody_disturbs, smoke=True),
        Scenario(
            "every interleaving",
            "All orders in which two drivers, the network and Kafka can act; once more with an older checkpoint.",
            in_every_interleaving,
        ),
        Scenario(
            "on Kafka",
            "What the model found, carried out on a real Kafka; if that is nothing, two random walks.",
            on_kafka,
        ),
    ),
    hints={
        "unreadable": "Return a list of texts, each the name of a step exactly as in the task, such as "
        '["plan", "rows", "note"]. Look for a missing return, and for capitals and underscores.',
        "wrong": "Which steps belong together? A transaction begins with an epoch and ends with a commit, and only "
        "what somebody writes can be read.",
        "doubled": "The second driver published what was there already. Which step could have told it so? And can "
        "that still become true after it has looked?",
        "lost": "The checkpoint says that a batch is done, or the marker that it is published, and its records are "
        "not there. Which of your steps said so too early?",
        "lost/nobody disturbs": "Nobody disturbed, and records are missing: which step makes them visible, and does "
        "it come after they are sent?",
        "torn": "Half a batch can be seen. What has to become visible in the same instant, how many commits does that "
        "take, and which transaction does a commit end that comes late?",
        "out of order": "A batch is visible, and the one before it is not. Who took the one before for done, and who "
        "had told so?",
        "stuck": "A fresh driver that nobody disturbs gets no further. Look at the last steps: what does it find that "
        "it cannot go on from, and who left that behind?",
        "stuck/nobody disturbs": "Nobody disturbed, and the driver did not get through. Look at the last step: what "
        "would it have needed before?",
    },
    epilogue=epilogue,
    own_kafka=True,
)
