"""What a read_committed reader sees: beside a step, and once more along the bottom of a drawing, change by change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from labs.schedules.schedule import Event
from labs.schedules.svg import FAINT, GREEN, GREY, INK, ORANGE, line, text

CELL = 22  # pixels: of a record
HEIGHT, MARGIN = 48, 20  # of the strip
HEAD, STEP, GAP = 120, 52, 26  # its heading's width, that of "step 12", and what lies between two changes


def records(seen: tuple[int, ...], x: int, y: int, changed: bool = True) -> Iterator[str]:
    """Draw what the reader sees: a box for each record, in the order of the topic; a repeated one stands out."""
    for n, record in enumerate(seen):
        colour = ORANGE if record in seen[:n] else GREEN
        yield (
            f'<rect x="{x + n * CELL}" y="{y - 10}" width="{CELL - 3}" height="19" rx="3" fill="{colour}" '
            f'fill-opacity="{"1" if changed else "0.25"}"/>'
        )
        ink = "#FFFFFF" if changed and colour == GREEN else INK
        yield (
            f'<text x="{x + n * CELL + 9}" y="{y + 4}" text-anchor="middle" font-size="12" fill="{ink}">{record}</text>'
        )


def strip(events: Sequence[Event], width: int, top: int) -> Iterator[str]:
    """Draw what the reader sees after each step that has changed it, from left to right.

    It is one row: where not all of them have room in it, the last ones do.
    """
    changes = [(n, event.sees) for n, event in enumerate(events, 1) if event.sees is not None]
    x, y, room = MARGIN + HEAD, top + 24, width - 2 * MARGIN - HEAD + GAP
    widths = [STEP + max(len(seen), 2) * CELL + GAP for _, seen in changes]
    first = 0
    while first < len(changes) - 1 and sum(widths[first:]) + (CELL if first else 0) > room:
        first += 1
    yield line(MARGIN, top, width - MARGIN, top, FAINT, width=1)
    yield text(MARGIN, y + 4, "a reader sees", weight="bold")
    if not changes:
        yield text(x, y + 4, "nothing, after any step", colour=GREY)
    if first:
        yield text(x, y + 4, "…", colour=GREY)
        x += CELL
    for (n, seen), needed in zip(changes[first:], widths[first:], strict=True):
        yield text(x, y + 4, f"step {n}", colour=GREY, size=12)
        yield from records(seen, x + STEP, y) if seen else [text(x + STEP, y + 4, "nothing", colour=GREY, size=12)]
        x += needed
