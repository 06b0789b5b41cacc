"""The strikes of a run, which the seed chooses before the run begins; `job_session.py` carries them out.

The input is divided into one slice for each strike. Half of a slice is sent at once, while the job is down or catches
up. The other half is sent at a steady pace, and the strike comes meanwhile. So every job gets the same part of the
input between two strikes, however long it takes to start. The kills come at these four moments, in turn:

- before an answer: Kafka has the job's next records, and the proxy drops the answer, so that the job does not know
  that they are written;
- before a write: the proxy holds the job's next records back, but the job may have stored already that they are done;
- before the answer to a commit: Kafka has ended the job's transaction or stored its offsets, and the proxy drops the
  answer, so that the job cannot do what it does after a commit;
- at first sight: a read_uncommitted reader has seen the first new results, and a random delay (at most LONGEST_DELAY)
  has passed.

Guarantee: the same seed, workload and faults give the same plan. Limitations: each job has its own speed, so two runs
of one plan are similar, not equal. Without the proxy all kills are at first sight: the first, third, fifth, …
without a delay.
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
BEFORE = (ANSWER, WRITE, COMMIT, "")  # what the first, second, third, fourth kill comes before
OF_THE_NETWORK = ("cut", "slow", "late-commit", "outage")
STEADY_SECONDS = 4.0  # for sending the second half of a slice
LONGEST_DELAY = 0.15  # seconds from the first sight of a result to the strike
PATIENCE = 120.0  # seconds without a new result; a consumer group may wait 45 s for a killed member
LONGEST_WAIT = 1.0  # seconds of the steady half of a slice, after which the proxy waits for the job's next request


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

    It comes `delay` seconds after a reader has seen a result of the input record with index `moment`, or of a later
    record. A strike `before` a request or an answer does not use `moment`: `delay` seconds after the beginning of the
    steady half, it waits for the job's next such request.
    """

    kind: str
    moment: int
    delay: float
    before: str = ""


@dataclass(frozen=True)
class Strike:
    """A strike that was carried out: `seconds` since the first start; `met` tells what happened to the job.

    It has `missed` if the planned moment did not come, so that it struck nothing, or an idle job.
    """

    kind: str
    seconds: float
    met: str
    missed: bool = False

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "seconds": round(self.seconds, 2), "met": self.met, "missed": self.missed}


def kinds_of(kills: int, faults: Sequence[str]) -> list[str]:
    """Return the kinds of the strikes: `kills` kills if "kill" is among the faults, and each other fault once."""
    return ["kill"] * (kills if "kill" in faults else 0) + sorted(set(faults) - {"kill"})


def draw(
    due: Mapping[Any, int], inputs: Sequence[Input], kills: int, faults: Sequence[str], seed: int, proxied: bool
) -> list[Aim]:
    """Draw the strikes: the kinds of `kinds_of` in a random order, each with a random moment and delay.

    `due` maps each result to the index of the input record that completes it. Raises ValueError if `kills` is negative,
    if a fault needs the proxy and there is none, or if the input is so short that half a slice completes no result.
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
        # From the first half of the possible moments, so that the job gets more input after the strike.
        moment, share = random.choice(possible[: (len(possible) + 1) // 2]), random.random()
        before = BEFORE[killed % len(BEFORE)] if kind == "kill" and proxied else ""
        longest = LONGEST_WAIT if before else LONGEST_DELAY
        if kind == "kill" and not proxied and not killed % 2:
            longest = 0.0  # no delay, since some jobs commit their offsets within milliseconds after a write
        killed += kind == "kill"
        aims.append(Aim(kind, moment, share * longest, before))
    return aims
