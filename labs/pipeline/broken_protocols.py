"""The protocols that the course breaks: each lacks one thing that `exactly_once_kafka.protocol.exactly_once` has.

The course's sinks run them, the model tries them in every order, and the attack game shows them. Those that only the
model and its replays run have no first look, in which a sink would create the marker's topic.
"""

from __future__ import annotations

from exactly_once_kafka.protocol import Batch, MarkerMismatch, Protocol, is_published


def at_least_once(batch: Batch, has_epoch: bool) -> Protocol:
    """Write the rows, each visible at once."""
    yield "rows"


def transactions(batch: Batch, has_epoch: bool) -> Protocol:
    """Write the rows in a transaction, and do not look whether they were published before."""
    if not has_epoch:
        yield "fence"
    yield "rows"
    yield "commit"
    yield "next epoch"


def marker_ignored(batch: Batch, has_epoch: bool) -> Protocol:
    """Write and read the marker, but ignore what it says."""
    if not has_epoch:
        yield "look"
        yield "fence"
    yield "read marker"
    yield "rows"
    yield "marker"
    yield "commit"
    yield "next epoch"


def marker_read_before_fencing(batch: Batch, has_epoch: bool) -> Protocol:
    """Decide by a marker that another driver can still change."""
    if is_published((yield "look"), batch):
        yield "drain"
        return
    yield "fence"
    yield "rows"
    yield "marker"
    yield "commit"


def one_epoch_for_all_batches(batch: Batch, has_epoch: bool) -> Protocol:
    """Get an epoch for the first batch, and keep it for those that follow."""
    if not has_epoch:
        yield "look"
        yield "fence"
    if is_published((yield "read marker"), batch):
        yield "drain"
        return
    yield "rows"
    yield "marker"
    yield "commit"


def done_batch_not_drained(batch: Batch, has_epoch: bool) -> Protocol:
    """Return from a batch that is published without executing it."""
    if not has_epoch:
        if is_published((yield "look"), batch):
            return
        yield "fence"
    if is_published((yield "read marker"), batch):
        return
    yield "rows"
    yield "marker"
    yield "commit"
    yield "next epoch"


def marker_after_the_commit(batch: Batch, has_epoch: bool) -> Protocol:
    """Publish the rows first, and the marker in a transaction of its own."""
    if not has_epoch:
        yield "look"
        yield "fence"
    if is_published((yield "read marker"), batch):
        yield "drain"
        return
    yield "rows"
    yield "commit"
    yield "marker"
    yield "commit"
    yield "next epoch"


def marker_before_the_rows(batch: Batch, has_epoch: bool) -> Protocol:
    """Publish the marker first, and the rows in a transaction of their own."""
    if not has_epoch:
        yield "look"
        yield "fence"
    if is_published((yield "read marker"), batch):
        yield "drain"
        return
    yield "marker"
    yield "commit"
    yield "rows"
    yield "commit"
    yield "next epoch"


def marker_known_by_its_number(batch: Batch, has_epoch: bool) -> Protocol:
    """Compare the number in the marker with the batch's, and not the plans."""
    if not has_epoch:
        yield "fence"
    marker = yield "read marker"
    last = marker.batch_id if marker else -1
    if last == batch.batch_id:
        yield "drain"
        return
    if last != batch.batch_id - 1:
        raise MarkerMismatch(f"the last batch committed is {last}")
    yield "rows"
    yield "marker"
    yield "commit"
    yield "next epoch"


def no_look_before_fencing(batch: Batch, has_epoch: bool) -> Protocol:
    """Assume that nothing was published if there is no marker, though somebody may have deleted it."""
    if not has_epoch:
        yield "fence"
    if is_published((yield "read marker"), batch):
        yield "drain"
        return
    yield "rows"
    yield "marker"
    yield "commit"
    yield "next epoch"


def noted_before_the_commit(batch: Batch, has_epoch: bool) -> Protocol:
    """Let Spark note the batch as done before the commit. Only the model and its replays know the step "note"."""
    if not has_epoch:
        yield "fence"
    if is_published((yield "read marker"), batch):
        yield "drain"
        return
    yield "rows"
    yield "marker"
    yield "note"  # type: ignore[misc]
    yield "commit"
    yield "next epoch"


def rows_not_counted(batch: Batch, has_epoch: bool) -> Protocol:
    """Commit without asking whether all rows are acknowledged. For executors, who may report that they are not."""
    yield from no_look_before_fencing(batch, has_epoch)  # it does not ask either


def silence_not_aborted(batch: Batch, has_epoch: bool) -> Protocol:
    """If Kafka does not answer, write the rows again under the same epoch."""
    if not has_epoch:
        yield "fence"
    if is_published((yield "read marker"), batch):
        yield "drain"
        return
    while not (yield "rows"):
        pass
    yield "marker"
    yield "commit"
    yield "next epoch"
