"""The pipeline of the course, from the access log to the auditor."""

from __future__ import annotations

from collections.abc import Iterator

from labs.schedules.svg import BLUE, GREEN, GREY, Drawing, arrow, box, document, line, text

WIDTH, HEIGHT, ROW = 980, 306, 120  # pixels; the top of the boxes
BOX, STEP, TALL = 140, 166, 86  # a box's width, from box to box, a box's height
STATIONS = (
    ("access.log", "time and IP", "of each request"),
    ("ip_count_source", "Kafka topic", ""),
    ("PySpark", "requests per IP", "in windows of 5 s"),
    ("ip_count_sink", "Kafka topic", ""),
    ("reader", "read_committed:", "what is decided"),
    ("auditor", "lost? doubled?", "torn?"),
)
WORDS = (
    "The pipeline, from left to right. access.log: time and IP of each request. Kafka topic ip_count_source: the "
    "requests. PySpark: counts the requests per IP in windows of 5 s, and keeps a checkpoint of its own: offsets/, "
    "state/, commits/. Kafka topic ip_count_sink: the counts. A read_committed reader: sees what is decided. The "
    "auditor: compares what the reader sees with its own count of access.log, which takes neither Kafka nor Spark."
)


def draw_pipeline() -> Drawing:
    """Return the pipeline as a picture."""
    return document(WIDTH, HEIGHT, "The pipeline of this course", WORDS, _parts(), size=14)


def _parts() -> Iterator[str]:
    left = [5 + n * STEP for n in range(len(STATIONS))]
    for n, (x, (name, *below)) in enumerate(zip(left, STATIONS, strict=True)):
        topic = below[0] == "Kafka topic"
        yield box(x, ROW, BOX, TALL, fill="#E5F1F8" if topic else "#F2F2F2", edge=BLUE if topic else "#222222")
        yield text(x + BOX // 2, ROW + 26, name, anchor="middle", size=15, weight="bold")
        for row, words in enumerate(below):
            yield text(x + BOX // 2, ROW + 48 + row * 20, words, anchor="middle", size=14)
        if topic:  # a topic is a log: records by offset
            for offset in range(5):
                yield box(x + 16 + offset * 22, ROW + 56, 20, 20, fill="#FFFFFF", edge=BLUE)
                yield text(x + 26 + offset * 22, ROW + 71, str(offset), anchor="middle", size=12)
        if n:
            yield arrow(x - STEP + BOX + 3, ROW + TALL // 2, x - 2, ROW + TALL // 2)
    spark, auditor = left[2] + BOX // 2, left[5] + BOX // 2
    yield line(spark, ROW + TALL, spark, ROW + TALL + 26, BLUE, dashes="6 3")
    yield box(spark - 110, ROW + TALL + 26, 220, 64, dashes="6 3")
    yield text(spark, ROW + TALL + 50, "checkpoint", anchor="middle", size=15, weight="bold")
    yield text(spark, ROW + TALL + 74, "offsets/  ·  state/  ·  commits/", anchor="middle", size=14)
    start = left[0] + BOX // 2
    yield line(start, ROW, start, 66, GREEN)
    yield line(start, 66, auditor, 66, GREEN)
    yield arrow(auditor, 66, auditor, ROW - 2, colour=GREEN)
    counted = "the auditor counts access.log itself, without Kafka and without Spark"
    yield text((start + auditor) // 2, 54, counted, anchor="middle", size=14, colour=GREY)
    yield text(5, 26, "The pipeline of this course", size=17, weight="bold")
