"""Exercise 8: the protocol of a batch, against every interleaving.

    def publish(batch, has_epoch):
        yield "rows"

A driver runs it for each batch that Spark has planned, and Spark notes the batch as done when the generator ends. The
generator yields the step that the driver is to take, and gets its answer, which is None for all but two of them:

    "fence"        ask Kafka for an epoch, which fences all older drivers and aborts their open transactions
    "read marker"  the answer is the marker of the batch that was published last, or None
    "rows"         send the batch's records (the answer is True: they have arrived)
    "marker"       send the marker of this batch
    "commit"       commit what was sent since the last commit; without any "commit", all is visible at once
    "drain"        execute the batch without publishing anything, so that Spark's state moves on
    "next epoch"   ask for the next batch's epoch, and do not wait for it
    "note"         have Spark note the batch as done already now

`has_epoch` tells whether the driver has an epoch from the batch before; it keeps one until it asks for another. A batch
has a `batch_id` and a `plan`, a text that says which records are in it; so has a marker. `batch.previous_plan` is
the plan of the batch before, None for batch 0. To refuse a batch, raise `MarkerMismatch`.

The generator may use only its arguments and the answers: the checker runs it once in each possible situation, and
tries the yielded steps in every order. Each record must be visible exactly once, whichever driver crashes, sleeps or
comes back, and whatever the network delays, loses or delivers twice.
"""

from __future__ import annotations

from labs.exercises.checker.batch_judges import in_every_interleaving, nobody_disturbs, on_kafka, the_steps
from labs.exercises.checker.scenario import Exercise, Finding, Grade, Scenario


def epilogue(findings: list[Finding]) -> str:
    """Say how much was tried, and within which bounds."""
    if not findings or not all(finding.grade is Grade.PASSED for finding in findings):
        return ""
    *_, model, kafka = findings
    return (
        f"What do you know now? In the model, {model.detail}, and {kafka.detail}. Two batches, two drivers and each "
        "fault once: within these bounds every order was tried, which no number of crash tests can do. Beyond them "
        "the protocol is a conjecture, and so is the claim that Kafka always does what the model says."
    )


EXERCISE = Exercise(
    name="batch_protocol",
    task="The protocol of a batch, which no interleaving breaks.",
    entry="labs.exercises.checker.calls:with_answers",
    seconds=30,
    scenarios=(
        Scenario("the steps", "publish is run with every answer that it can get.", the_steps, smoke=True),
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
        "unreadable": "A protocol is a generator: publish yields one step after the other, each a text exactly as in "
        'the task, as in: yield "rows". Look for capitals, underscores, and a return where a yield should be.',
        "changeable": "publish may depend on the batch, on has_epoch and on the answers, and on nothing else. What "
        "must survive a crash belongs into Kafka: the marker is there for that.",
        "hung": "Each loop needs an end. A batch takes a handful of steps. Do not wait for a marker to appear: this "
        "driver may be the only one.",
        "crashed: AttributeError": 'The answer to "read marker" is None until a batch is published: look at the answer '
        "before you use its batch_id.",
        "wrong": "Which steps belong together? A transaction begins with an epoch and ends with a commit, and a marker "
        "can be read only if it was written.",
        "doubled": "The second driver published what was there already. Which step could have told it so? And can "
        "that still become true after it has looked?",
        "lost": "The checkpoint says that a batch is done, or the marker says that it is published, but its records "
        "are missing. Which of your steps came too early? Or did the marker belong to another batch?",
        "lost/nobody disturbs": "There was no fault, and records are missing: which step makes them visible, and does "
        "it come after they are sent?",
        "torn": "Half a batch is visible. Which records have to become visible at the same moment, how many commits "
        "does that take, and which transaction does a late commit end?",
        "out of order": "A batch is visible, and the one before it is not. Which driver took the one before for done, "
        "and by which step?",
        "stuck": "A fresh driver makes no progress, though nothing disturbs it. Look at the last steps: what does it "
        "find that stops it, and which step left that behind?",
        "stuck/nobody disturbs": "There was no fault, and the driver did not finish. Look at the last step: which step "
        "does it need before it?",
    },
    epilogue=epilogue,
    own_kafka=True,
    counted="records, as a read_committed reader sees them",
)
