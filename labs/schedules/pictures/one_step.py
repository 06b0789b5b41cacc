"""One step or two: readers with a position and an effect, and what publishes a batch in three kinds of sink."""

from __future__ import annotations

from collections.abc import Iterator

from labs.schedules.svg import BLUE, DARK_RED, GREEN, GREY, RED, Drawing, arrow, box, document, line, text

WIDTH = 940
TOPIC, STEP = "#E5F1F8", "#DFF2EB"  # the ground of a topic, and of a step that decides

READERS_WORDS = (
    "Two readers, from left to right. Topic ip_count_source is read by our job; its effect is records in topic "
    "results, its position is in the checkpoint, and the marker ties the two together: one step, whatever crashes. "
    "Topic results is read by her consumer; its effect is her table, its position is in a consumer group of "
    "Kafka's: two steps, and a crash fits in between."
)
COMMITS = (
    ("Kafka", ("begin", "rows", "marker"), "commit"),
    ("a database", ("begin", "rows", "batch id"), "commit"),
    ("a directory", ("", "rows in a file", "draft of the entry"), "rename the draft"),
)
COMMITS_WORDS = (
    "Three sinks, and how each publishes a batch. Kafka: begin, rows, marker, commit. A database: begin, rows, "
    "batch id, commit. A directory: rows in a file, the draft of an entry, rename the draft. The last step of each is "
    "one step: before it nobody sees the batch, after it everybody sees all of it."
)


def draw_readers() -> Drawing:
    """Return our job and who reads on, each with its position and its effect."""
    return document(WIDTH, 270, "Who reads on", READERS_WORDS, _readers(), size=14)


def _readers() -> Iterator[str]:
    yield text(5, 26, "Who reads on", size=17, weight="bold")
    chain = ("ip_count_source", "our job", "results", "her consumer", "her table")
    left = [5 + n * 195 for n in range(len(chain))]
    for n, (x, name) in enumerate(zip(left, chain, strict=True)):
        topic = n in (0, 2)
        yield box(x, 50, 140, 44, fill=TOPIC if topic else "#F2F2F2", edge=BLUE if topic else "#222222")
        yield text(x + 70, 77, name, anchor="middle", size=14, weight="bold")
        if n:
            yield arrow(x - 52, 72, x - 3, 72)
    stores = (
        (left[1], "its position: the checkpoint", "its effect: topic results", "one step, by the marker", GREEN),
        (left[3], "its position: a consumer group", "its effect: her table", "two steps: a crash fits in", RED),
    )
    for x, position, effect, verdict, colour in stores:
        yield line(x + 70, 94, x + 70, 128, colour, dashes="6 3")
        yield box(x - 55, 128, 250, 104, fill="#FFFFFF", edge=colour)
        yield text(x + 70, 154, position, anchor="middle", size=14)
        yield text(x + 70, 180, effect, anchor="middle", size=14)
        yield text(x + 70, 212, verdict, anchor="middle", size=15, weight="bold", colour=_dark(colour))
    yield text(left[1] + 70, 256, "lessons 01 to 06", anchor="middle", size=14, colour=GREY)
    yield text(left[3] + 70, 256, "this lesson", anchor="middle", size=14, colour=GREY)


def draw_commits() -> Drawing:
    """Return the steps by which three kinds of sink publish a batch, and the one that counts."""
    return document(WIDTH, 300, "The step that publishes a batch", COMMITS_WORDS, _commits(), size=14)


def _commits() -> Iterator[str]:
    yield text(5, 26, "The step that publishes a batch", size=17, weight="bold")
    for n, (place, steps, last) in enumerate(COMMITS):
        y = 56 + n * 66
        yield text(5, y + 28, place, size=15, weight="bold")
        for k, step in enumerate(steps):
            if step:
                yield box(130 + k * 185, y, 155, 44)
                yield text(207 + k * 185, y + 27, step, anchor="middle", size=14)
                yield arrow(286 + k * 185, y + 22, 313 + k * 185 + (30 if k == 2 else 0), y + 22)
        yield box(715, y, 180, 44, fill=STEP, edge=GREEN)
        yield text(805, y + 27, last, anchor="middle", size=15, weight="bold")
    yield line(692, 44, 692, 262, RED, dashes="6 3")
    yield text(
        680, 284, "a crash on this side: the batch is not there, for anybody", anchor="end", size=14, colour=DARK_RED
    )
    yield text(704, 284, "on this side: all of it is", size=14, colour=_dark(GREEN))


def _dark(colour: str) -> str:
    """Return the colour for words, which need more contrast than lines."""
    return {GREEN: "#00654A", RED: DARK_RED}[colour]
