"""The program of a stage as a text to read: what a driver does for a batch, in the order in which it does it."""

from __future__ import annotations

from labs.schedules.model.kafka import Stage

REMARK = 62  # column in which a line says by which name orders call its step


def source_of(stage: Stage) -> str:
    """Return the program, some 10 to 25 lines; behind each step stands its name in orders."""
    lines = [_producer(stage)] if stage.keeps_epoch or "fence" not in stage.program else []
    lines.append("for batch in batches_behind(checkpoint.noted):")
    commits = stage.program.count("commit")
    for step in stage.program:
        lines += [f"    {line}" for line in _step(step, stage)]
        if step == "commit" and commits == 2:
            lines.append("    producer.begin_transaction()")
            commits = 0
    return "\n".join(map(_aligned, lines))


def _producer(stage: Stage) -> str:
    name = ", transactional_id=name" if stage.transactional else ""
    return f"producer = Producer(enable_idempotence={stage.idempotent}{name})"


def _aligned(line: str) -> str:
    code, sign, remark = line.partition("  # ")
    return f"{code:<{REMARK}}{sign}{remark}" if sign else line


def _step(step: str, stage: Stage) -> list[str]:
    if step == "fence":
        begin = "producer.begin_transaction()"
        if stage.keeps_epoch:
            return ["if it_has_no_epoch(producer):", "    producer.init_transactions()  # epoch", begin]
        return [_producer(stage), "producer.init_transactions()  # epoch", begin]
    if step == "read marker":
        deleted = ", which Kafka deletes after some time" if "forget the marker" in stage.luck else ""
        drain = ["    compute(batch)  # for Spark's state"] if stage.drains else []
        return [
            f"marker = last_committed(marker_topic)  # reading{deleted}",
            f"if {'marker == (batch, end)' if stage.marker_says_plan else 'marker == batch'}:",
            *drain,
            "    checkpoint.note(batch)  # note",
            "    continue",
            f"if marker{'.batch' if stage.marker_says_plan else ''} != batch - 1:  # none stands for -1",
            "    refuse()",
        ]
    said = "(batch, end)" if stage.marker_says_plan else "batch"
    return {
        "plan": ["end = checkpoint.plan(batch)  # plan; what is planned already stays so"],
        "rows": ["for row in compute(batch):", "    producer.send(topic, row).wait()  # row 0, row 1"],
        "marker": [f"producer.send(marker_topic, {said}).wait()  # marker"],
        "commit": ["producer.commit_transaction()  # commit"],
        "note": ["checkpoint.note(batch)  # note"],
    }[step]
