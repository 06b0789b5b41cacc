"""When an engine is killed: drawn from a seed and the log alone, so that every engine meets the same kills."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from labs.evidence.auditor.expected import count_by_window
from labs.pipeline.log.access_log import Access
from labs.pipeline.records import LATENESS_MS, WINDOW_MS

LONGEST_DELAY = 0.15  # seconds from the drawn number of results to the kill


@dataclass(frozen=True)
class Kill:
    """Strike `delay` seconds after `results` different results were visible to who reads uncommitted."""

    results: int
    delay: float


def slices(log: Sequence[Access], kills: int) -> list[Sequence[Access]]:
    """Cut the log into one slice for each kill and one for the end."""
    cuts = [len(log) * n // (kills + 1) for n in range(kills + 2)]
    return [log[a:b] for a, b in itertools.pairwise(cuts)]


def draw_kills(log: Sequence[Access], kills: int, seed: int) -> list[Kill]:
    """Draw a kill for each slice but the last, among the results that it makes final.

    Raises ValueError if a half of a slice makes none final: the log is too short for so many kills.
    """
    if kills < 0:
        raise ValueError(f"{kills} kills; expected 0 or more")
    random = Random(seed)
    drawn: list[Kill] = []
    windows = sorted(start for start, _ in count_by_window(log))
    final, latest = [0], 0
    for half in itertools.chain.from_iterable(map(halves, slices(log, kills)[:-1])):
        latest = max((time_ms for time_ms, _ in half), default=latest)
        final.append(sum(start + WINDOW_MS + LATENESS_MS <= latest for start in windows))
        if final[-1] == final[-2]:
            raise ValueError(f"{len(log):,} records are too few for {kills} kills: no window would end between them")
    for before, after in zip(final[1::2], final[2::2], strict=True):
        # Every other one strikes at once: some engines remember within milliseconds what they have written.
        delay = LONGEST_DELAY * random.random() if len(drawn) % 2 else 0.0
        drawn.append(Kill(random.randint(before + 1, after), delay))
    return drawn


def halves(part: Sequence[Access]) -> tuple[Sequence[Access], Sequence[Access]]:
    """Cut a slice into what is sent at once and what is sent at a steady pace."""
    middle = len(part) // 2
    return part[:middle], part[middle:]
