"""Exercise 5: the foreachBatch sink with a marker.

    def publish(rows, batch_id, kafka): ...

Spark calls it for each micro-batch; `rows` has the column `value`. After a crash Spark repeats the batch in flight
under the same batch_id. Each row must be in `kafka.topic` exactly once for a read_committed reader.

`kafka.new_producer()` returns a transactional producer with an epoch of its own: begin_transaction(),
produce(topic, value), commit_transaction(). `kafka.last_batch()` returns the batch that was marked last, or -1.
`kafka.mark(batch_id)` marks a batch as done, at once; `kafka.mark(batch_id, producer)` does so within the producer's
open transaction.
"""

from __future__ import annotations

from labs.evidence.auditor.expected import count_by_window
from labs.exercises.checker.rounds import Round, spark_scenarios
from labs.exercises.checker.scenario import Exercise
from labs.exercises.checker.student_process import Limits, Run
from labs.pipeline.log.generate import classroom
from labs.pipeline.records import CLOSING_DELAY_MS, CLOSING_IP

PER_WINDOW = 12


NO_MARKER, OUTSIDE, NOT_READ = "no marker", "marker outside", "marker not read"


def what_became_of_the_marker(run: Run) -> str:
    """Return a run's mistake with the marker, if its calls show one."""
    marks = [
        event["what"] for event in run.events if event["what"].startswith("kafka.mark(") and event["kind"] == "call"
    ]
    if not run.reached("before kafka.mark"):
        return NO_MARKER
    if any(", producer)" not in mark for mark in marks):
        return OUTSIDE
    return "" if run.reached("before kafka.last_batch") else NOT_READ


def _round(*faults: tuple[str, int, str]) -> Round:
    """Four windows of 4 IPs, a batch for each, and a request 10 s later; batches 2 to 5 publish a window each."""
    accesses = list(classroom(windows=4, clients=4, per_window=3))
    expected = count_by_window(accesses)
    return Round(
        [*accesses, (accesses[-1][0] + CLOSING_DELAY_MS, CLOSING_IP)],
        expected,
        PER_WINDOW,
        faults,
        cause=what_became_of_the_marker,
    )


def _raise(point: str, *batches: int) -> Round:
    return _round(*((point, batch, "raise") for batch in batches))


EXERCISE = Exercise(
    name="exactly_once_sink",
    task="The foreachBatch sink with a marker.",
    entry="labs.exercises.checker.spark_calls:with_sink",
    seconds=60,
    scenarios=spark_scenarios(
        "publish",
        [
            ("no crash", "Runs to the end of the log.", _round()),
            (
                "crash after commit",
                "The query fails directly after batches 3 and 5 committed, and is restarted.",
                _raise("after producer.commit_transaction", 3, 5),
            ),
            (
                "crash before commit",
                "The query fails when batches 2 and 4 are about to commit, and is restarted.",
                _raise("before producer.commit_transaction", 2, 4),
            ),
            (
                "killed after commit",
                "SIGKILL of Spark directly after batch 4 committed.",
                _round(("after producer.commit_transaction", 4, "kill")),
            ),
        ],
    ),
    hints={
        "doubled": "A batch was committed, and its repetition was too. Spark repeats it under the same batch_id: what "
        "could the repetition look at to recognise it? And can a crash come between the rows and that?",
        f"doubled: {NO_MARKER}": "A batch was committed twice: nothing told the sink that it had been published. "
        "Let each batch leave a mark, kafka.mark, and look at the last one, kafka.last_batch(), before you write.",
        f"doubled: {OUTSIDE}": "There is a mark, in a step of its own behind the commit: a crash came between the two, "
        "and the repetition found no mark. Make it a part of the transaction: kafka.mark(batch_id, producer).",
        f"doubled: {NOT_READ}": "Each batch is marked, but the repetition does not look: it has to ask "
        "kafka.last_batch() before it writes, and to skip a batch that is there.",
        f"lost: {OUTSIDE}": "The mark was visible before the rows were committed: a crash came between the two, and "
        "the repetition took the batch for done. The mark must be visible together with the rows: kafka.mark(batch_id, "
        "producer), before producer.commit_transaction().",
        "doubled/no crash": "Nothing crashed, and rows are there twice: how often does each row reach produce()?",
        "lost": "A batch was marked, and its rows were not committed, so the repetition was left out. The mark must be "
        "visible together with the rows, not before: kafka.mark(batch_id, producer).",
        "lost/no crash": "Nothing crashed, and rows are missing: is each transaction committed? Is a batch taken for "
        "done that is not?",
        "crashed after a restart": "If it is Spark's state that is missing: a batch that is left out must still be "
        "executed, to nowhere: rows.write.format('noop').mode('overwrite').save(). Executing it is what moves Spark's "
        "state on.",
        "crashed: KafkaException": "Kafka's client refused the call. If the error says 'state', the call came when no "
        "transaction was open, or while one was still open. producer.produce(…) and kafka.mark(batch_id, producer) "
        "belong between begin_transaction and commit_transaction. (The checker keeps the markers in a topic.)",
        "nothing done": "Begin with a producer: kafka.new_producer().",
        "hung": "Was a transaction begun and left open? The next one waits for it.",
    },
    limits=Limits(seconds=120, memory=5_000),  # a busy machine took more than 60
    warm=True,
)
