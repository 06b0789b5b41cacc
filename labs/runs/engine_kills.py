"""When an engine is killed: drawn from a seed and the log alone, so that every engine meets the same kills.

A kill is aimed at a moment that can be seen from outside, in Kafka: a first result of a drawn window has come into
sight of who reads uncommitted. Then something is written that the engine may not have remembered yet, whatever it
remembers by.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from labs.evidence.auditor.expected import count_by_window
from labs.pipeline.log.access_log import Access
from labs.pipeline.records import LATENESS_MS, WINDOW_MS

LONGEST_DELAY = 0.15  # seconds from the sight of a window to the kill


@dataclass(frozen=True)
class Kill:
    """Strike `delay` seconds after `results` different results can be seen by who reads uncommitted.

    The last of these is the first of a window.
    """

    results: int
    delay: float


def slices(log: Sequence[Access], kills: int) -> list[Sequence[Access]]:
    """Cut the log into one slice for each kill and one for the end."""
    cuts = [len(log) * n // (kills + 1) for n in range(kills + 2)]
    return [log[a:b] for a, b in itertools.pairwise(cuts)]


def draw_kills(log: Sequence[Access], kills: int, seed: int) -> list[Kill]:
    """Draw a kill for each slice but the last, at one of the windows that its second half makes final.

    Raises ValueError if a half of a slice makes none final: the log is too short for so many kills.
    """
    if kills < 0:
        raise ValueError(f"{kills} kills; expected 0 or more")
    random = Random(seed)
    drawn: list[Kill] = []
    of_window = results_by_window(log)
    final, sent = [0], 0
    for half in itertools.chain.from_iterable(map(halves, slices(log, kills)[:-1])):
        sent += len(half)
        final.append(sum(ends <= _latest(log[:sent]) for ends, _ in of_window))
        if final[-1] == final[-2]:
            raise ValueError(f"{len(log):,} records are too few for {kills} kills: no window would end between them")
    for before, after in zip(final[1::2], final[2::2], strict=True):
        window = random.randrange(before, after)
        # Every other one strikes at once: some engines remember within milliseconds what they have written.
        delay = LONGEST_DELAY * random.random() if len(drawn) % 2 else 0.0
        drawn.append(Kill(sum(count for _, count in of_window[:window]) + 1, delay))
    return drawn


def results_by_window(log: Sequence[Access]) -> list[tuple[int, int]]:
    """Return (when it is final, in epoch milliseconds; how many results it has) for each window, in order."""
    counted = itertools.groupby(sorted(start for start, _ in count_by_window(log)))
    return [(start + WINDOW_MS + LATENESS_MS, len(list(found))) for start, found in counted]


def final_results(log: Sequence[Access], sent: int) -> int:
    """Return how many results the first `sent` accesses make final."""
    latest = _latest(log[:sent])
    return sum(count for ends, count in results_by_window(log) if ends <= latest)


def halves(part: Sequence[Access]) -> tuple[Sequence[Access], Sequence[Access]]:
    """Cut a slice into what is sent at once and what is sent at a steady pace."""
    middle = len(part) // 2
    return part[:middle], part[middle:]


def _latest(part: Sequence[Access]) -> int:
    return max((time_ms for time_ms, _ in part), default=0)
