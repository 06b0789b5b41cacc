"""Two-phase commit by hand, over any number of Kafka transactions: all are committed or none is.

1. Prepare: every participant writes, flushes, and returns its PreparedTransaction (`prepared`).
2. Decide: one durable record says whether all of them are committed or aborted (`DecisionLog`).
3. Finish: any process ends each transaction by that decision (`end_transaction`).

A run that dies before step 2 has decided nothing, and one that dies later has decided everything, so the next
run knows what to do. The next run must call `recover` before anything else, since the first producer with the same
transactional id would abort what was prepared.

Guarantee: when `recover` returns, no prepared transaction is open, and each decision is carried out in full or reported
in `lost` or `failed`.
Limitations: a prepared transaction that outlives `transaction.timeout.ms` is lost, and nobody can write it again. A
micro-batch that Spark repeats needs no two-phase commit: its sink writes the batch again (`exactly_once_kafka`).

The decision log alone says whether a prepared transaction must be committed. A decision is there as a whole, or it was
never made; and no two decisions have the same number. Presumed abort: a transaction without a decision is aborted.
So a crash that leaves a torn record, or none, does no harm: nothing is finished before its decision is on disk.
Limitations: a disk may lose what it had confirmed; the checksum shows that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exactly_once_kafka.points import Points, pass_by
from labs.pipeline.sinks.file_sink import TEMPORARY, publish
from labs.pipeline.two_phase.end_transaction import FinishFailed, TransactionLost, finish, lingering
from labs.pipeline.two_phase.prepared import PreparedTransaction


class DecisionConflict(RuntimeError):
    """Another decision of the same number is recorded."""


class TornDecision(ValueError):
    """A record is damaged."""


@dataclass(frozen=True)
class Decision:
    """Decision `number`: commit all of these transactions, or abort all of them."""

    number: int
    commit: bool
    transactions: tuple[PreparedTransaction, ...]

    def to_line(self) -> str:
        """Return the record: one line of JSON that ends with the checksum of the rest."""
        body: dict[str, Any] = {
            "number": self.number,
            "commit": self.commit,
            "transactions": [transaction.as_dict() for transaction in self.transactions],
        }
        return json.dumps({**body, "sha256": _checksum(body)}) + "\n"

    @classmethod
    def from_line(cls, line: str) -> Decision:
        """Read a record. Raises TornDecision."""
        try:
            body = json.loads(line)
            stated = body.pop("sha256")
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise TornDecision(f"no whole record: {line[:60]!r}") from error
        if stated != _checksum(body):
            raise TornDecision("its checksum does not fit")
        return cls(body["number"], body["commit"], tuple(PreparedTransaction(**t) for t in body["transactions"]))


class DecisionLog:
    """A directory with one file per decision that may not have been carried out yet."""

    def __init__(self, directory: str | Path):
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)

    def record(
        self,
        number: int,
        commit: bool,
        transactions: Iterable[PreparedTransaction],
        points: Points = pass_by,
    ) -> Decision:
        """Make a decision. When this returns, the decision is on disk, and must be carried out.

        `points` is called with "mid_decision" when half of the record is written, under a temporary name.
        Raises DecisionConflict if the number is taken by another decision, TornDecision if by a damaged record.
        """
        decision = Decision(number, commit, tuple(transactions))
        try:
            publish(self._file(number), _halves(decision.to_line()), lambda: points("mid_decision", number))
        except FileExistsError as error:
            found = Decision.from_line(self._file(number).read_text(errors="replace"))
            if found != decision:
                raise DecisionConflict(f"decision {number} was made before, and differently: {found}") from error
        return decision

    def read(self) -> tuple[list[Decision], dict[Path, str]]:
        """Return the decisions in the order of their numbers, and for each torn record what is wrong with it."""
        decisions, torn = [], {}
        for file in self.directory.glob("*.json"):
            try:
                decisions.append(Decision.from_line(file.read_text(errors="replace")))
            except TornDecision as error:
                torn[file] = str(error)
        return sorted(decisions, key=lambda decision: decision.number), torn

    def forget(self, decision: Decision) -> None:
        """Drop a decision that has been carried out."""
        self._file(decision.number).unlink(missing_ok=True)

    def set_aside(self, torn: Path) -> None:
        """Rename a torn record: it stays as evidence, and `read` ignores it."""
        torn.rename(torn.with_suffix(".torn"))

    def sweep(self) -> None:
        """Delete the files that a dead run left half written."""
        for file in self.directory.glob(f".*{TEMPORARY}"):
            file.unlink(missing_ok=True)

    def _file(self, number: int) -> Path:
        return self.directory / f"{number}.json"


def _halves(line: str) -> tuple[str, str]:
    return line[: len(line) // 2], line[len(line) // 2 :]


def _checksum(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


@dataclass
class Recovery:
    """What `recover` did. `torn` has the damaged records and what is wrong with each; they count as no decision."""

    committed: list[PreparedTransaction] = field(default_factory=list)
    aborted: list[PreparedTransaction] = field(default_factory=list)
    lost: dict[PreparedTransaction, TransactionLost] = field(default_factory=dict)
    failed: dict[PreparedTransaction, FinishFailed] = field(default_factory=dict)
    torn: dict[Path, str] = field(default_factory=dict)

    def carry_out(self, transaction: PreparedTransaction, commit: bool, bootstrap_servers: str) -> bool:
        """Finish a transaction, note the result, and tell whether it ended as it should."""
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

    Call it before the first producer of the prefix starts, and while no other run uses the prefix: it treats every open
    transaction as one of a dead run. A decision that could not be carried out stays in the log, and is reported again.
    Raises TimeoutError if the coordinators do not answer.
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
