"""The strikes of a run, which the seed chooses before the run begins; `job_session.py` carries them out.

The input is divided into one slice for each strike. Half of a slice is sent at once, while the job is down or catches
up. The other half is sent at a steady pace, and the strike comes meanwhile. So every job gets the same part of the
input between two strikes, however long it takes to start. A kill strikes at one of four moments, in turn:

- before an answer: Kafka has the job's next records, and the proxy drops the answer, so that the job cannot know yet
  that they are written;
- before a write: the proxy holds the job's next records back, and the job may have noted what it never wrote;
- before the answer to a commit: Kafka has ended the job's transaction or noted its offsets, and the proxy drops the
  answer, so that the job cannot do what it does after a commit;
- at first sight: a read_uncommitted reader has just seen the first new results, or did so a drawn moment ago.

Guarantee: the same seed, workload and faults give the same plan. Limitations: each job has its own speed, so two runs
of one plan are similar, not equal. Without the proxy each kill is at first sight, every other one at once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from labs.judging.workloads import Input

KINDS = {
    "kill": "SIGKILL to the job, and a new start",
    "terminate": "SIGTERM to the job, SIGKILL if it has not ended after 10 seconds, and a new start",
    "pause": "SIGSTOP to the job for 5 seconds",
    "cut": "all connections to the broker are cut",
    "slow": "the answer to the job's next records comes 3 seconds late",
    "late-commit": "a request to end a transaction comes 3 seconds late, after the client has repeated it",
    "outage": "SIGKILL to the job while its commit is held back; a new start after 16 seconds",
}
ANSWER, WRITE, COMMIT = "an answer", "a write", "the answer to a commit"
BEFORE = (ANSWER, WRITE, COMMIT, "")  # of one kill after the other
OF_THE_NETWORK = ("cut", "slow", "late-commit", "outage")
STEADY_SECONDS = 4.0  # for sending the second half of a slice
LONGEST_DELAY = 0.15  # seconds from the first sight of a result to the strike
PATIENCE = 120.0  # seconds without a new result: a consumer group may wait 45 s for a killed member
LONGEST_WAIT = 1.0  # seconds within the steady half of a slice until the job's next write is struck


Record = TypeVar("Record")


def slices(inputs: Sequence[Record], strikes: int) -> list[Sequence[Record]]:
    """Cut the input into one slice for each strike and one for the end."""
    cuts = [len(inputs) * n // (strikes + 1) for n in range(strikes + 2)]
    return [inputs[a:b] for a, b in itertools.pairwise(cuts)]


def halves(part: Sequence[Record]) -> tuple[Sequence[Record], Sequence[Record]]:
    """Cut a slice into the half that is sent at once and the half that is sent at a steady pace."""
    middle = len(part) // 2
    return part[:middle], part[middle:]


def check_rate(inputs: Sequence[Input], strikes: int, rate: float) -> None:
    """Raise ValueError if the steady half of a slice is over before its strike may come."""
    shortest = min((len(halves(part)[1]) for part in slices(inputs, strikes)[:-1]), default=0) / rate
    if strikes and shortest < LONGEST_WAIT:
        enough = math.ceil(2 * LONGEST_WAIT * rate) * (strikes + 1)
        raise ValueError(
            f"{len(inputs):,} records are too few for {strikes} strikes at {rate:g} a second: "
            f"give --records {enough} or more"
        )


@dataclass(frozen=True)
class Aim:
    """One planned strike.

    A reader sees a result of the input with the index `moment`, or of a later one; `delay` seconds later the strike
    comes. If it is to come `before` something, `delay` counts from the beginning of the steady half.
    """

    kind: str
    moment: int
    delay: float
    before: str = ""


@dataclass(frozen=True)
class Strike:
    """A strike that was carried out: `seconds` since the first start; `met` says what the job met."""

    kind: str
    seconds: float
    met: str

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "seconds": round(self.seconds, 2), "met": self.met}


def kinds_of(kills: int, faults: Sequence[str]) -> list[str]:
    """Return the kinds of the strikes: `kills` kills if "kill" is among the faults, and each other fault once."""
    return ["kill"] * (kills if "kill" in faults else 0) + sorted(set(faults) - {"kill"})


def draw(
    due: Mapping[Any, int], inputs: Sequence[Input], kills: int, faults: Sequence[str], seed: int, proxied: bool
) -> list[Aim]:
    """Draw the strikes: those of `kinds_of`, in a drawn order.

    Raises ValueError if a half of a slice makes no result due: the input is too short.
    """
    if kills < 0:
        raise ValueError(f"{kills} kills; expected 0 or more")
    if not proxied and (unfit := [each for each in faults if each in OF_THE_NETWORK]):
        raise ValueError(f"{', '.join(unfit)}: these need the lab's own Kafka and its proxy; omit --bootstrap-servers")
    random = Random(seed)
    kinds = kinds_of(kills, faults)
    random.shuffle(kinds)
    aims, moments, sent, killed = [], sorted(set(due.values())), 0, 0
    for kind, part in zip(kinds, slices(inputs, len(kinds)), strict=False):
        at_once, _ = halves(part)
        before_it, first, sent = sent, sent + len(at_once), sent + len(part)
        possible = [moment for moment in moments if first <= moment < sent]
        # The steady half is sent when a result of the first half is committed.
        if not possible or not any(before_it <= moment < first for moment in moments):
            raise ValueError(f"{len(inputs):,} records are too few for {len(kinds)} strikes: give more --records")
        # In the first half of what is possible: after the strike, the job is to meet more input.
        moment, share = random.choice(possible[: (len(possible) + 1) // 2]), random.random()
        before = BEFORE[killed % len(BEFORE)] if kind == "kill" and proxied else ""
        longest = LONGEST_WAIT if before else LONGEST_DELAY
        if kind == "kill" and not proxied and not killed % 2:
            longest = 0.0  # some jobs note within milliseconds what they have written
        killed += kind == "kill"
        aims.append(Aim(kind, moment, share * longest, before))
    return aims
