"""The program of a stage as a text to read: what a driver does for a batch, in the order in which it does it."""

from __future__ import annotations

from collections.abc import Iterator

from labs.schedules.model.kafka import Stage

REMARK = 66  # column in which a line says by which name orders call its step
NAMES = {"plan": "plan", "fence": "epoch", "read marker": "reading", "rows": "row 0, row 1", "marker": "marker"}


def source(stage: Stage) -> str:
    """Return the program, some 10 to 20 lines; behind each step stands its name in orders."""
    return "\n".join(_lines(stage))


def _lines(stage: Stage) -> Iterator[str]:
    yield f"for batch in batches_behind(checkpoint.noted):  # {stage.batches} batches of {stage.rows} rows in all"
    for step in stage.program:
        named = False
        for line in _step(step, stage):
            remark = "" if named else f"  # {NAMES.get(step, step)}"
            yield f"    {line}".ljust(REMARK) + remark if remark else f"    {line}"
            named = True


def _step(step: str, stage: Stage) -> list[str]:
    begin = ["producer.begin_transaction()"] if stage.transactional else []
    new = f"Producer(enable_idempotence={stage.idempotent}{', transactional_id=name' if stage.transactional else ''})"
    if step == "plan":
        plan = ["end = checkpoint.plan(batch)  # as it is planned there, if it is"]
        return plan if "fence" in stage.program else [*plan, f"producer = producer or {new}"]
    if step == "fence":
        if stage.keeps_epoch:
            return [f"producer = producer or {new}.init_transactions()", *begin]
        return [f"producer = {new}.init_transactions()", *begin]
    if step == "read marker":
        done = "marker == (batch, end)" if stage.marker_says_plan else "marker.batch == batch"
        kept = " # kept for a time, then deleted" if "forget the marker" in stage.luck else ""
        skip = "compute(batch)  # for Spark's state; nothing is sent" if stage.drains else "pass  # nothing to compute"
        return [
            f"marker = last_committed(marker_topic){kept}",
            f"if {done}:",
            f"    {skip}",
            "    checkpoint.note(batch)",
            "    continue",
            "if marker.batch != batch - 1:",
            "    refuse()  # an operator has to look",
        ]
    return {
        "rows": ["for row in compute(batch):", "    producer.send(topic, row).wait()"],
        "marker": [f"producer.send(marker_topic, ({'batch, end' if stage.marker_says_plan else 'batch'})).wait()"],
        "commit": ["producer.commit_transaction()"],
        "note": ["checkpoint.note(batch)"],
    }[step]
