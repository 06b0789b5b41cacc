"""Two-phase commit by hand, over any number of Kafka transactions: all are committed or none is.

1. Prepare: every participant writes, flushes, and hands out its PreparedTransaction (`prepared`).
2. Decide: one durable record says what is to become of all of them (`decision_log`).
3. Finish: each transaction is ended by that decision, by whoever is there (`end_transaction`).

A run that dies before step 2 has decided nothing, and one that dies later has decided everything, so the next
run knows what to do: `recover`. It comes before anything else, since the first producer of the same
transactional id would abort what was prepared.

Guarantee: after `recover` nothing prepared is left, and each decision is carried out in full.
Where it stops: `transaction.timeout.ms`. A micro-batch that replays has no use for all this: its sink writes the
batch again (`exactly_once_kafka`), whereas what was prepared and then timed out cannot be written again by anybody.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from exactly_once_kafka.points import Points, pass_by
from labs.pipeline.two_phase.decision_log import DecisionLog
from labs.pipeline.two_phase.end_transaction import FinishFailed, TransactionLost, finish
from labs.pipeline.two_phase.open_transactions import lingering
from labs.pipeline.two_phase.prepared import PreparedTransaction

# The places where a run can be made to die, in order. Each is reached with the number of the decision.
TWO_PHASE_POINTS = (
    "after_flush",  # the records are in Kafka; nobody has been told
    "before_decision",  # everything is prepared
    "mid_decision",  # half of the record is written, under a temporary name
    "after_decision",  # decided; nothing is finished
    "between_ends",  # the first transaction is finished, the next is not
    "after_ends",  # all are finished; the decision is still in the log
)


def decide_and_finish(
    number: int,
    commit: bool,
    transactions: Iterable[PreparedTransaction],
    decisions: DecisionLog,
    bootstrap_servers: str,
    points: Points = pass_by,
) -> None:
    """Take steps 2 and 3 for decision `number`. Raises what `DecisionLog.record` and `finish` raise."""
    points("before_decision", number)
    decision = decisions.record(number, commit, transactions, points)
    points("after_decision", number)
    for count, transaction in enumerate(decision.transactions):
        if count:
            points("between_ends", number)
        finish(transaction, commit, bootstrap_servers)
    points("after_ends", number)
    decisions.forget(decision)


@dataclass
class Recovery:
    """What `recover` did. `torn` has the damaged records and what is wrong with each; they decided nothing."""

    committed: list[PreparedTransaction] = field(default_factory=list)
    aborted: list[PreparedTransaction] = field(default_factory=list)
    lost: dict[PreparedTransaction, TransactionLost] = field(default_factory=dict)
    failed: dict[PreparedTransaction, FinishFailed] = field(default_factory=dict)
    torn: dict[Path, str] = field(default_factory=dict)

    def carry_out(self, transaction: PreparedTransaction, commit: bool, bootstrap_servers: str) -> bool:
        """Finish a transaction, note what became of it, and tell whether it ended as it should."""
        try:
            finish(transaction, commit, bootstrap_servers)
        except TransactionLost as error:
            self.lost[transaction] = error
        except FinishFailed as error:
            self.failed[transaction] = error
        else:
            (self.committed if commit else self.aborted).append(transaction)
            return True
        return False

    def __str__(self) -> str:
        lines = [f"committed {len(self.committed)}, aborted {len(self.aborted)}, lost {len(self.lost)}"]
        lines += [f"LOST: {error}" for error in self.lost.values()]
        lines += [f"FAILED: {error}" for error in self.failed.values()]
        lines += [f"torn: {file.name}: {fault}: presumed abort" for file, fault in self.torn.items()]
        return "\n".join(lines)


def recover(decisions: DecisionLog, bootstrap_servers: str, prefix: str) -> Recovery:
    """End what a dead run left open under transactional ids that begin with `prefix`: by its decisions, or by abort.

    Call it before the first producer of the prefix starts, and while no other run uses the prefix: what is open
    is taken for dead. A decision that could not be carried out stays in the log, and is reported again.
    """
    done = Recovery()
    recorded, done.torn = decisions.read()
    for decision in recorded:
        carried_out = [done.carry_out(each, decision.commit, bootstrap_servers) for each in decision.transactions]
        if all(carried_out):
            decisions.forget(decision)
    for transaction in lingering(bootstrap_servers, prefix):
        done.carry_out(transaction, False, bootstrap_servers)
    for file in done.torn:
        decisions.set_aside(file)
    decisions.sweep()
    return done
