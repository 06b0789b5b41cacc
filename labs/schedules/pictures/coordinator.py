"""Who takes part in a transaction: the producer, its coordinator with a log of its own, and the data's partition."""

from __future__ import annotations

from collections.abc import Iterator

from labs.schedules.svg import BLUE, DARK_RED, GREEN, GREY, INK, ORANGE, RED, Drawing, arrow, box, document, line, text

WIDTH, HEIGHT = 980, 486
LEFT, RIGHT = 10, 400  # pixels: the left edges of the producer and of what is in the broker
CELL = 62
STATES = ("Empty", "Ongoing", "PrepareCommit", "CompleteCommit")
RECORDS = ("a", "b", "c", "commit", "d", "e")  # two transactions: one committed, one open
STEPS = (
    (110, "1  its name; gets its id and epoch"),
    (150, "2  a partition joins in"),
    (190, "4  commit"),
    (376, "3  records, with id, epoch, number"),
)
WORDS = """\
A transaction, and who takes part in it.
1. The producer tells the transaction coordinator, a broker, its transactional id, and gets a producer id and an epoch.
2. It tells the coordinator which partition joins the transaction: Ongoing.
3. It sends its records to the partition's leader, each with producer id, epoch and sequence number.
4. It asks the coordinator to commit.
5. The coordinator writes the decision into the transaction log, the topic __transaction_state: PrepareCommit. \
Now it is decided, whoever dies.
6. The coordinator writes a control record, the commit marker, into each partition of the transaction; then: \
CompleteCommit.
In the partition: records a, b, c at offsets 0 to 2, their commit marker at 3, and d and e of an open transaction at 4 \
and 5. The last stable offset is 4: a read_committed reader sees a, b and c, and goes no further."""


def draw_coordinator() -> Drawing:
    """Return the parts of a transaction as a picture."""
    return document(WIDTH, HEIGHT, "A transaction, and who takes part in it", WORDS, _parts(), size=14)


def _parts() -> Iterator[str]:
    yield text(10, 26, "A transaction, and who takes part in it", size=17, weight="bold")
    yield box(LEFT, 96, 120, 310)
    yield text(LEFT + 60, 216, "producer", anchor="middle", size=14, weight="bold")
    for n, words in enumerate(("transactional id", "“counter”", "producer id 7", "epoch 3")):
        yield text(LEFT + 60, 240 + n * 22 + n // 2 * 6, words, anchor="middle", size=14)
    for y, words in STEPS:
        yield arrow(LEFT + 120, y, RIGHT - 2, y)
        yield text(LEFT + 128, y - 7, words, size=14)
    yield from _coordinator()
    yield from _partition()


def _coordinator() -> Iterator[str]:
    yield box(RIGHT, 50, 570, 176, fill="#F2F2F2")
    yield text(RIGHT + 14, 76, "transaction coordinator", size=15, weight="bold")
    yield text(RIGHT + 14, 98, "a broker: it leads this name’s part of the transaction log", size=14)
    yield text(RIGHT + 14, 132, "transaction log: topic __transaction_state", size=14, colour=GREY)
    x = RIGHT + 14
    for state in STATES:
        width, decided = 8 * len(state) + 34, state == "PrepareCommit"
        yield box(x, 142, width, 32, fill="#FFFFFF", edge=RED if decided else BLUE)
        yield text(x + width // 2, 163, state, anchor="middle", size=14, weight="bold" if decided else "normal")
        if decided:
            yield text(x + width // 2, 202, "5  decided, whoever dies", anchor="middle", size=14, colour=DARK_RED)
        x += width + 8


def _partition() -> Iterator[str]:
    top, left = 340, RIGHT + 14
    yield arrow(RIGHT + 14 + 3 * CELL + CELL // 2, 226, RIGHT + 14 + 3 * CELL + CELL // 2, top - 4)
    yield text(left + 3 * CELL + CELL // 2 + 10, 262, "6  the commit marker, into each", size=14)
    yield text(left + 3 * CELL + CELL // 2 + 27, 281, "partition of it; then CompleteCommit", size=14)
    yield box(RIGHT, 300, 570, 176, fill="none", edge=INK)
    yield text(RIGHT + 14, 323, "a partition of the results", size=15, weight="bold")
    for offset, record in enumerate(RECORDS):
        x, control, undecided = left + offset * CELL, record == "commit", offset > 3
        yield box(x, top, CELL - 4, 44, fill="#FFFFFF", edge=BLUE if control else ORANGE if undecided else GREEN)
        yield text(x + CELL // 2 - 2, top + 27, record, anchor="middle", size=13 if control else 15, weight="bold")
        yield text(x + CELL // 2 - 2, top + 62, str(offset), anchor="middle", size=13, colour=GREY)
    yield text(left + 6 * CELL + 6, top + 27, "d and e: still open", size=14)
    yield text(left + 6 * CELL + 6, top + 62, "offset", size=13, colour=GREY)
    stable = left + 4 * CELL - 2
    yield line(stable, top - 12, stable, top + 116, RED, width=3)
    yield text(stable + 10, top + 92, "last stable offset: 4", size=14, colour=DARK_RED, weight="bold")
    yield text(stable + 10, top + 114, "behind it nobody knows how it ends", size=14)
    yield text(left, top + 92, "a read_committed reader", size=14)
    yield text(left, top + 114, "sees a, b, c and stops", size=14)
