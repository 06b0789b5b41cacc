"""Exercise 4: consume, transform, produce, exactly once, with send_offsets_to_transaction.

    def copy(consumer, producer, topic): ...

The source holds 12 results as `window_start,ip,count`. Each must be in `topic` as the JSON object
`{"window_start": …, "ip": …, "count": …}`, exactly once for a read_committed reader, wherever the process was killed.

`consumer` and `producer` are confluent_kafka's, with all their methods. The producer has its transactional id, and
nobody has called init_transactions() yet. consumer.poll() returns None at the end of the topic.
"""

from __future__ import annotations

from labs.evidence.auditor.audit import Result
from labs.exercises.checker.rounds import KafkaTrial, read_published, results_of_a_log, scenarios_of
from labs.exercises.checker.scenario import Exercise, Lab
from labs.exercises.checker.student_process import Limits


class Copied(KafkaTrial):
    """12 lines, to be copied into a topic that outlives the process, as do the group and its offsets."""

    def __init__(self, lab: Lab):
        from labs.equipment.topics import create_topic

        expected = results_of_a_log(windows=3, clients=4)
        lines = [f"{window},{ip},{count}".encode() for (window, ip), count in expected.items()]
        super().__init__(lab, lines, expected, list(expected))
        self.target = create_topic(lab.servers, f"{self.group}-copy", partitions=1)

    def tools(self) -> dict:
        return {**super().tools(), "target": self.target, "transactional_id": self.group}

    def results(self) -> list[Result]:
        return read_published(self.servers, self.target)


EXERCISE = Exercise(
    name="transactional_copy",
    task="Consume, transform, produce, with send_offsets_to_transaction.",
    entry="labs.exercises.checker.calls:with_producer",
    seconds=15,
    scenarios=scenarios_of(
        Copied,
        "copy",
        ("after produce", "after producer.produce", "directly after a producer.produce"),
        ("before commit", "before producer.commit_transaction", "when the transaction is about to be committed"),
        ("after commit", "after producer.commit_transaction", "directly after a transaction was committed"),
    ),
    hints={
        "doubled": "Results were committed, and the offsets behind them were not, so a restart read the records again. "
        "Offsets can be part of the same transaction: send_offsets_to_transaction, before commit_transaction.",
        "doubled/no crash": "Nothing crashed, but the second start copied records again. What did the group's offset "
        "say? It is the offset of the *next* record: consumer.position(consumer.assignment()) has it.",
        "lost": "The offset was committed, and the transaction with the results was not. The consumer's own commit is "
        "no part of the producer's transaction: send the offset to the transaction.",
        "lost/no crash": "Nothing crashed, and results are missing for a read_committed reader: is every transaction "
        "committed, the last one too?",
        "wrong": "The topic holds something else than the results: the value is JSON with window_start, ip, count.",
        "crashed: KafkaException": "init_transactions() once per process, then begin_transaction() … "
        "commit_transaction() per transaction. The error above says which step Kafka did not expect.",
    },
    limits=Limits(seconds=20),
)
