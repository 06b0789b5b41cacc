"""Pictures of the lessons: the pipeline, a transaction, readers, commits, and the points at which a batch can crash."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from exactly_once_kafka.points import (
    AFTER_COMMIT,
    BEFORE_CHECKPOINT,
    BEFORE_COMMIT,
    BEFORE_ROWS,
    FAULT_POINTS,
    MID_ROWS,
)
from labs.schedules.svg import (
    BLUE,
    DARK_GREEN,
    DARK_RED,
    FAINT,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE,
    PALE_BLUE,
    RED,
    Drawing,
    arrow,
    box,
    cross,
    document,
    line,
    text,
)


def _middle(x: int, y: int, words: str, size: int = 14, **look: Any) -> str:
    return text(x, y, words, anchor="middle", size=size, **look)


# The pipeline

STATIONS = (
    ("access.log", "time and IP", "of each request"),
    ("ip_count_source", "Kafka topic", ""),
    ("PySpark", "requests per IP", "in windows of 5 s"),
    ("ip_count_sink", "Kafka topic", ""),
    ("reader", "read_committed:", "what is decided"),
    ("auditor", "lost? doubled?", "torn?"),
)
PIPELINE = (
    "The pipeline, from left to right. access.log: time and IP of each request. Kafka topic ip_count_source: the "
    "requests. PySpark: counts the requests per IP in windows of 5 s, and keeps a checkpoint of its own: offsets/, "
    "state/, commits/. Kafka topic ip_count_sink: the counts. A read_committed reader: sees what is decided. The "
    "auditor: compares what the reader sees with its own count of access.log, which takes neither Kafka nor Spark."
)


def draw_pipeline() -> Drawing:
    """Return the pipeline of the course, from the access log to the auditor."""
    return document(980, 306, "The pipeline of this course", PIPELINE, _pipeline(), size=14)


def _pipeline() -> Iterator[str]:
    row, width, step, tall = (
        120,
        140,
        166,
        86,
    )  # pixels: the top of the boxes, their width, from box to box, their height
    left = [5 + n * step for n in range(len(STATIONS))]
    for n, (x, (name, *below)) in enumerate(zip(left, STATIONS, strict=True)):
        topic = below[0] == "Kafka topic"
        yield box(x, row, width, tall, fill=PALE_BLUE if topic else PALE, edge=BLUE if topic else INK)
        yield _middle(x + width // 2, row + 26, name, 15, weight="bold")
        for k, words in enumerate(below):
            yield _middle(x + width // 2, row + 48 + k * 20, words)
        if topic:  # a topic is a log: records by offset
            for offset in range(5):
                yield box(x + 16 + offset * 22, row + 56, 20, 20, fill="#FFFFFF", edge=BLUE)
                yield _middle(x + 26 + offset * 22, row + 71, str(offset), 12)
        if n:
            yield arrow(x - step + width + 3, row + tall // 2, x - 2, row + tall // 2)
    log, spark, auditor = (left[n] + width // 2 for n in (0, 2, 5))
    bottom = row + tall
    yield line(spark, bottom, spark, bottom + 26, BLUE, dashes="6 3")
    yield box(spark - 110, bottom + 26, 220, 64, dashes="6 3")
    yield _middle(spark, bottom + 50, "checkpoint", 15, weight="bold")
    yield _middle(spark, bottom + 74, "offsets/  ·  state/  ·  commits/")
    yield line(log, row, log, 66, GREEN)
    yield line(log, 66, auditor, 66, GREEN)
    yield arrow(auditor, 66, auditor, row - 2, colour=GREEN)
    counted = "the auditor counts access.log itself, without Kafka and without Spark"
    yield _middle((log + auditor) // 2, 54, counted, colour=GREY)
    yield text(5, 26, "The pipeline of this course", size=17, weight="bold")


# A transaction

TRANSACTION = """\
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
LEFT, RIGHT, CELL = 10, 400, 62  # pixels: the left edges of producer and broker, a record's width


def draw_coordinator() -> Drawing:
    """Return a transaction's parts: the producer, its coordinator with a log of its own, and the data's partition."""
    return document(980, 486, "A transaction, and who takes part in it", TRANSACTION, _transaction(), size=14)


def _transaction() -> Iterator[str]:
    yield text(10, 26, "A transaction, and who takes part in it", size=17, weight="bold")
    yield box(LEFT, 96, 120, 310)
    yield _middle(LEFT + 60, 216, "producer", weight="bold")
    for n, words in enumerate(("transactional id", "“counter”", "producer id 7", "epoch 3")):
        yield _middle(LEFT + 60, 240 + n * 22 + n // 2 * 6, words)
    for y, words in (
        (110, "1  its name; gets its id and epoch"),
        (150, "2  a partition joins in"),
        (190, "4  commit"),
        (376, "3  records, with id, epoch, number"),
    ):
        yield arrow(LEFT + 120, y, RIGHT - 2, y)
        yield text(LEFT + 128, y - 7, words, size=14)
    yield from _coordinator()
    yield from _partition()


def _coordinator() -> Iterator[str]:
    yield box(RIGHT, 50, 570, 176)
    yield text(RIGHT + 14, 76, "transaction coordinator", size=15, weight="bold")
    yield text(RIGHT + 14, 98, "a broker: it leads this name’s part of the transaction log", size=14)
    yield text(RIGHT + 14, 132, "transaction log: topic __transaction_state", size=14, colour=GREY)
    x = RIGHT + 14
    for state in ("Empty", "Ongoing", "PrepareCommit", "CompleteCommit"):
        width, decided = 8 * len(state) + 34, state == "PrepareCommit"
        yield box(x, 142, width, 32, fill="#FFFFFF", edge=RED if decided else BLUE)
        yield _middle(x + width // 2, 163, state, weight="bold" if decided else "normal")
        if decided:
            yield _middle(x + width // 2, 202, "5  decided, whoever dies", colour=DARK_RED)
        x += width + 8


def _partition() -> Iterator[str]:
    """Draw a partition with two transactions: one is committed, and one is open."""
    top, left = 340, RIGHT + 14
    marker = left + 3 * CELL + CELL // 2
    yield arrow(marker, 226, marker, top - 4)
    yield text(marker + 10, 262, "6  the commit marker, into each", size=14)
    yield text(marker + 27, 281, "partition of it; then CompleteCommit", size=14)
    yield box(RIGHT, 300, 570, 176, fill="none")
    yield text(left, 323, "a partition of the results", size=15, weight="bold")
    for offset, record in enumerate(("a", "b", "c", "commit", "d", "e")):
        x, control, undecided = left + offset * CELL, record == "commit", offset > 3
        yield box(x, top, CELL - 4, 44, fill="#FFFFFF", edge=BLUE if control else ORANGE if undecided else GREEN)
        yield _middle(x + CELL // 2 - 2, top + 27, record, 13 if control else 15, weight="bold")
        yield _middle(x + CELL // 2 - 2, top + 62, str(offset), 13, colour=GREY)
    yield text(left + 6 * CELL + 6, top + 27, "d and e: still open", size=14)
    yield text(left + 6 * CELL + 6, top + 62, "offset", size=13, colour=GREY)
    stable = left + 4 * CELL - 2
    yield line(stable, top - 12, stable, top + 116, RED, width=3)
    yield text(stable + 10, top + 92, "last stable offset: 4", size=14, colour=DARK_RED, weight="bold")
    yield text(stable + 10, top + 114, "behind it nobody knows how it ends", size=14)
    yield text(left, top + 92, "a read_committed reader", size=14)
    yield text(left, top + 114, "sees a, b, c and stops", size=14)


# Readers, and the step that publishes a batch

READERS = (
    "Two readers, from left to right. Topic ip_count_source is read by our job; its effect is records in topic "
    "results, its position is in the checkpoint, and the marker says what is written: two steps, and no crash matters. "
    "Topic results is read by her consumer; its effect is her table, its position is in a consumer group of "
    "Kafka's: two steps without a marker, and a crash fits in between."
)
COMMITS = (
    "Three sinks, and how each publishes a batch. Kafka: begin, rows, marker, commit. A database: begin, rows, "
    "batch id, commit. A directory: rows in a file, the draft of an entry, rename the draft. The last step of each is "
    "one step: before it nobody sees the batch, after it everybody sees all of it."
)


def draw_readers() -> Drawing:
    """Return two readers, our job and a consumer of its results, each with its position and its effect."""
    return document(940, 270, "Who reads on", READERS, _readers(), size=14)


def _readers() -> Iterator[str]:
    yield text(5, 26, "Who reads on", size=17, weight="bold")
    left = [5 + n * 195 for n in range(5)]
    for n, name in enumerate(("ip_count_source", "our job", "results", "her consumer", "her table")):
        x, topic = left[n], n in (0, 2)
        yield box(x, 50, 140, 44, fill=PALE_BLUE if topic else PALE, edge=BLUE if topic else INK)
        yield _middle(x + 70, 77, name, weight="bold")
        if n:
            yield arrow(x - 52, 72, x - 3, 72)
    for x, position, effect, verdict, colour, ink in (
        (
            left[1],
            "its position: the checkpoint",
            "its effect: topic results",
            "two steps and a marker",
            GREEN,
            DARK_GREEN,
        ),
        (
            left[3],
            "its position: a consumer group",
            "its effect: her table",
            "two steps, no marker",
            RED,
            DARK_RED,
        ),
    ):
        yield line(x + 70, 94, x + 70, 128, colour, dashes="6 3")
        yield box(x - 55, 128, 250, 104, fill="#FFFFFF", edge=colour)
        yield _middle(x + 70, 154, position)
        yield _middle(x + 70, 180, effect)
        yield _middle(x + 70, 212, verdict, 15, weight="bold", colour=ink)
    yield _middle(left[1] + 70, 256, "lessons 01 to 07", colour=GREY)
    yield _middle(left[3] + 70, 256, "this lesson", colour=GREY)


def draw_commits() -> Drawing:
    """Return the steps by which three kinds of sink publish a batch, and the one that counts."""
    return document(940, 300, "The step that publishes a batch", COMMITS, _commits(), size=14)


def _commits() -> Iterator[str]:
    yield text(5, 26, "The step that publishes a batch", size=17, weight="bold")
    for y, place, steps, last in (
        (56, "Kafka", ("begin", "rows", "marker"), "commit"),
        (122, "a database", ("begin", "rows", "batch id"), "commit"),
        (188, "a directory", ("", "rows in a file", "draft of the entry"), "rename the draft"),
    ):
        yield text(5, y + 28, place, size=15, weight="bold")
        for k, step in enumerate(steps):
            if step:
                yield box(130 + k * 185, y, 155, 44)
                yield _middle(207 + k * 185, y + 27, step)
                yield arrow(286 + k * 185, y + 22, 313 + k * 185 + (30 if k == 2 else 0), y + 22)
        yield box(715, y, 180, 44, fill="#DFF2EB", edge=GREEN)
        yield _middle(805, y + 27, last, 15, weight="bold")
    yield line(692, 44, 692, 262, RED, dashes="6 3")
    before = "a crash on this side: the batch is not there, for anybody"
    yield text(680, 284, before, anchor="end", size=14, colour=DARK_RED)
    yield text(704, 284, "on this side: all of it is", size=14, colour=DARK_GREEN)


# A batch on its way, and the points at which the lab can crash it

LINE, TALL, GAP, ROW = 104, 66, 14, 26  # pixels: the top of the steps, their height, between them, between points
KAFKA, CHECKPOINT = "in Kafka", "in the checkpoint"
LOOKS = {"": (PALE, INK), KAFKA: (PALE_BLUE, BLUE), CHECKPOINT: ("#E5F5F1", GREEN)}


class Step(NamedTuple):
    """A step: two lines about it, where it leaves something, how wide it is drawn, and its fault points.

    `points` maps each fault point to a text about the state in which a crash there leaves the batch. MID_ROWS is in the
    middle of the step; the other points come after it.
    """

    name: str
    below: tuple[str, str]
    keeper: str = ""
    width: int = 100
    points: dict[str, str] = {}  # noqa: RUF012


READ = Step("read", ("how far is", "the source?"))
PLAN = Step("plan", ("offsets/{batch}", "is written"), CHECKPOINT)
COMPUTE = Step("compute", ("the counts,", "in state/"))
ROWS = Step("rows", ("first half,", "second half"), KAFKA, 168)
NOTE = Step("note", ("commits/{batch}", "is written"), CHECKPOINT)
DONE = "the sink is done; Spark has not noted that"
WITH_TRANSACTION = (
    READ,
    PLAN,
    COMPUTE,
    Step("begin", ("a new epoch;", "which marker?"), KAFKA, 110, {BEFORE_ROWS: "nothing is written"}),
    ROWS._replace(points={MID_ROWS: "half of the rows are in Kafka"}),
    Step(
        "marker",
        ("“batch {batch}", "is in here”"),
        KAFKA,
        points={BEFORE_COMMIT: "all rows and the marker are in Kafka, and nobody sees them"},
    ),
    Step(
        "commit",
        ("the rows are", "visible"),
        KAFKA,
        points={AFTER_COMMIT: "the rows are visible", BEFORE_CHECKPOINT: DONE},
    ),
    NOTE,
)
AT_LEAST_ONCE = (
    READ,
    PLAN,
    COMPUTE._replace(points={BEFORE_ROWS: "nothing is written"}),
    ROWS._replace(
        points={
            MID_ROWS: "half of the rows are visible",
            AFTER_COMMIT: "all rows are acknowledged and visible",
            BEFORE_CHECKPOINT: DONE,
        }
    ),
    NOTE,
)


def draw_batch(crash: str | None = None, *, transaction: bool = True, batch: int | str = "N") -> Drawing:
    """Return a batch's steps with the fault points between them, and a crash at one of these if one is named.

    Without `transaction` the steps are those of the at-least-once sink: its rows are visible at once, and it has no
    marker.
    """
    steps: tuple[Step, ...] = WITH_TRANSACTION if transaction else AT_LEAST_ONCE
    points = [point for step in steps for point in step.points]
    if crash is not None and crash not in points:
        without = " without a transaction" if crash in FAULT_POINTS else ""
        raise ValueError(f"no fault point {crash!r}{without}; there are {', '.join(points)}")
    steps = tuple(s._replace(below=(s.below[0].format(batch=batch), s.below[1].format(batch=batch))) for s in steps)
    title = f"Batch {batch}, crashed at {crash}" if crash else f"Batch {batch}, and the points at which it can crash"
    width = max(20 + sum(step.width + _gap(step) for step in steps), 640)
    height = LINE + TALL + 24 + ROW * len(points) + 10
    return document(width, height, title, _in_words(title, steps, crash), _batch(title, steps, crash), size=14)


def _gap(step: Step) -> int:
    """Return the room behind a step: for a line at each of its points that is not in its middle."""
    return GAP + 12 * sum(point != MID_ROWS for point in step.points)


def _in_words(title: str, steps: tuple[Step, ...], crash: str | None) -> str:
    lines = [f"{title}. One step after the other:"]
    for n, step in enumerate(steps, 1):
        where = f", {step.keeper}" if step.keeper else ""
        lines.append(f"{n}. {step.name}{where}: {' '.join(step.below)}")
        for point, means in step.points.items():
            lines.append(f"   {'halfway, ' if point == MID_ROWS else ''}{point}: {means}")
            if point == crash:
                return "\n".join([*lines, "   Here it crashes: what would come next does not happen."])
    return "\n".join(lines)


def _batch(title: str, steps: tuple[Step, ...], crash: str | None) -> Iterator[str]:
    yield text(10, 26, title, size=17, weight="bold")
    x, row, happens, in_kafka, flags = 10, LINE + TALL + 30, True, list[int](), list[str]()
    for step in steps:
        if step.keeper == KAFKA:
            in_kafka += [x, x + step.width]
        if step.name == "rows":
            half = step.width // 2
            yield from _step(step, x, half, step.below[0].removesuffix(","), happens=happens)
            happens = happens and crash != MID_ROWS
            yield from _step(step, x + half, half, step.below[1], happens=happens)
        else:
            yield from _step(step, x, step.width, *step.below, happens=happens)
        behind = x + step.width + GAP // 2 + 6
        for point, means in step.points.items():
            at = x + step.width // 2 if point == MID_ROWS else behind
            behind += 0 if point == MID_ROWS else 12
            flags += _flag(at, row, point, means, point == crash)
            happens = happens and point != crash
            row += ROW
        x += step.width + _gap(step)
    yield from _legend(min(in_kafka), max(in_kafka), steps[-2].name == "commit")
    yield from flags


def _step(step: Step, x: int, width: int, *below: str, happens: bool) -> Iterator[str]:
    """Draw a step, or one half of it. A step that does not happen is pale."""
    fill, edge = LOOKS[step.keeper] if happens else ("#FFFFFF", FAINT)
    yield box(x, LINE, width, TALL, fill, edge, dashes="" if happens else "4 3")
    for n, words in enumerate((step.name, *below)):
        weight, colour = "normal" if n else "bold", INK if happens else GREY
        yield _middle(x + width // 2, LINE + 22 + n * 18, words, 13 if n else 15, colour=colour, weight=weight)


def _flag(x: int, row: int, point: str, means: str, crashes: bool) -> Iterator[str]:
    """Draw a fault point: a line down to its name. Names stand to the left, so that no line crosses another name."""
    colour = RED if crashes else INK
    yield line(x, LINE - 6, x, row + 5, colour, width=3 if crashes else 1.5, dashes="" if crashes else "2 3")
    yield from cross(x, LINE - 12, 9) if crashes else ()
    yield text(x - 8, row + 4, means, anchor="end", size=14, colour=DARK_RED if crashes else INK, first=point)


def _legend(first: int, last: int, transaction: bool) -> Iterator[str]:
    for at, keeper in ((10, CHECKPOINT), (210, KAFKA)):
        yield box(at, 42, 22, 16, *LOOKS[keeper])
        yield text(at + 30, 55, f"kept {keeper}", size=14)
    if transaction:
        yield line(first, LINE - 24, last, LINE - 24, BLUE)
        for end in (first, last):
            yield line(end, LINE - 24, end, LINE - 14, BLUE)
        yield _middle((first + last) // 2, LINE - 30, "one transaction", colour=BLUE)
