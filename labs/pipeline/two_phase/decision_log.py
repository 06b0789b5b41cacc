"""The decision log of two-phase commit: the one place that says whether what was prepared is to be committed.

Guarantee: a decision is there whole or it was never made, and it is never made twice in two ways. Presumed
abort: what no decision speaks of is to be aborted. So a crash that leaves a torn record, or none, does no harm:
nobody acts upon a decision before it is on disk. Where it stops: a disk that loses what it had confirmed; the
checksum tells.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exactly_once_kafka.points import Points, pass_by
from labs.pipeline.sinks.durable_file import TEMPORARY, publish
from labs.pipeline.two_phase.prepared import PreparedTransaction


class DecisionConflict(RuntimeError):
    """Another decision of the same number is recorded."""


class TornDecision(ValueError):
    """A record is not what was written."""


@dataclass(frozen=True)
class Decision:
    """Decision `number`: these transactions are to be committed, all of them, or else aborted."""

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
        """Make a decision. When this returns it is on disk, and from then on it has to be carried out.

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
        """Return the decisions by number, and per torn record what is wrong with it."""
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
        """Keep a torn record as evidence, where nobody takes it for a decision."""
        torn.rename(torn.with_suffix(".torn"))

    def sweep(self) -> None:
        """Delete what a run that died left half written."""
        for file in self.directory.glob(f".*{TEMPORARY}"):
            file.unlink(missing_ok=True)

    def _file(self, number: int) -> Path:
        return self.directory / f"{number}.json"


def _halves(line: str) -> tuple[str, str]:
    return line[: len(line) // 2], line[len(line) // 2 :]


def _checksum(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
