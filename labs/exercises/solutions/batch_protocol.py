"""Who may write, what is there already, and only then the batch, which is there as a whole or not at all.

1. An epoch before the marker is read. The epoch fences every older driver, so that from here on nobody else can move
   the marker. Read before, it may be out of date by the time that one writes. And a new one for each batch: a commit of
   the batch before that arrives late must not find its epoch still in force.
2. The marker says whether the batch is published. If it is, a crash came between the commit and Spark's note: nothing
   is written, and the batch is executed to nowhere, since Spark's state has to move on.
3. It is this batch if the plan is the same, too: after an older checkpoint was restored, Spark plans another batch of
   the same number. What is neither this batch nor the one before is refused, before it is doubled or lost.
4. Rows and marker in one transaction. In two, a crash comes between them: rows without a marker are published again,
   and a marker without rows makes everyone believe in rows that are not there.
5. Spark's note comes last, as it does by itself: it says that the batch is done, so all of it must be there. What a
   crash before the note costs is one look at the marker.
"""

from exactly_once_kafka.protocol import MarkerMismatch


def publish(batch, has_epoch):
    yield "fence"
    marker = yield "read marker"
    last, plan = (marker.batch_id, marker.plan) if marker else (-1, None)
    if (last, plan) == (batch.batch_id, batch.plan):
        yield "drain"
        return
    if (last, plan) != (batch.batch_id - 1, batch.previous_plan):
        raise MarkerMismatch(f"batch {last} was the last one, and not as planned")
    yield "rows"
    yield "marker"
    yield "commit"
