"""The workload `transfer`: the job reads a transfer between two accounts, and writes a posting to each of them.

    {"id": 17, "from": "alice", "to": "bob", "amount": 5}      goes in, and out come
    {"id": 17, "account": "alice", "amount": -5}
    {"id": 17, "account": "bob", "amount": 5}

The sum of all postings is 0 at all times. A job that writes only one of the two makes money or loses it. The two may be
in different partitions: only one transaction makes them visible together or not at all. Limitations: their order is not
judged, and neither is a reader's view in between, since Kafka does not promise a reader both postings at one moment.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

from labs.evidence.auditor.verdict import Anomaly, AnomalyTally, Audit
from labs.judging.workload import Input, Output, Reading, audit_names

ACCOUNTS = ("alice", "bob")
LARGEST = 100  # the amounts are 1 to so much; closing records transfer 0


class Transfer:
    """`records` transfers, spread evenly over the partitions. A name is (id, account)."""

    name = "transfer"

    def __init__(self, records: int, partitions: int, seed: int):
        random, self.partitions = Random(seed), partitions
        self._amounts: dict[tuple[int, str], int] = {}
        self.due: dict[tuple[int, str], int] = {}
        self.inputs = []
        for number in range(records):
            payer, payee = random.sample(ACCOUNTS, 2)
            self.inputs.append(self._transfer(number, payer, payee, random.randint(1, LARGEST)))
        self.closing = [self._transfer(records + partition, *ACCOUNTS, 0) for partition in range(partitions)]
        self.aborted = [_order(records + partitions + each, each, *ACCOUNTS, LARGEST) for each in range(partitions)]
        self.last = {(number, account) for number, account in self.due if number >= records}

    def _transfer(self, number: int, payer: str, payee: str, amount: int) -> Input:
        for account, change in ((payer, -amount), (payee, amount)):
            self._amounts[number, account], self.due[number, account] = change, number
        return _order(number, number % self.partitions, payer, payee, amount)

    def result_of(self, output: Output) -> tuple[int, str] | None:
        """Return (id, account) of a posting; None if the posting is not expected, or has another amount."""
        try:
            posting = json.loads(output.value or b"")
            number, account, amount = posting["id"], posting["account"], posting["amount"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        # By type, not isinstance: JSON's `true` would pass for a 1.
        if (type(number), type(account), type(amount)) != (int, str, int):
            return None
        return (number, account) if self._amounts.get((number, account)) == amount else None

    def audit(self, reading: Reading) -> Audit:
        """Judge what was read: each posting once, and never one without the other."""
        if reading.error is not None:  # the run stopped early: the other posting of a transfer might still have come
            return audit_names(self.due, reading, self.result_of, _words)
        total = sum(self._amounts[name] for name in map(self.result_of, reading.outputs) if name)
        note = f"the sum of both accounts is {total:+,} instead of 0: money was made or lost" if total else ""
        return audit_names(self.due, reading, self.result_of, _words, self._judge_pairs, [Anomaly.TORN_BATCH], note)

    def _judge_pairs(self, found: dict[Any, list[Output]], tally: AnomalyTally) -> None:
        """Report each transfer whose two postings are not there equally often."""
        for number in sorted({number for number, _ in found}):
            times = {account: len(found.get((number, account), ())) for account in ACCOUNTS}
            if len(set(times.values())) > 1:
                told = ", ".join(
                    f"{account} {self._amounts[number, account]:+} {_times(count)}" for account, count in times.items()
                )
                tally.add(Anomaly.TORN_BATCH, "transfer {}: {}", number, told)


def _order(number: int, partition: int, payer: str, payee: str, amount: int) -> Input:
    value = {"id": number, "from": payer, "to": payee, "amount": amount}
    return Input(partition, str(number).encode(), json.dumps(value).encode())


def _words(name: tuple[int, str]) -> str:
    return f"the posting of transfer {name[0]} to {name[1]}"


def _times(count: int) -> str:
    return "is not there" if not count else "once" if count == 1 else f"{count} times"
