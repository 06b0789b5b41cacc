"""How a sink publishes each batch exactly once: the order of the steps, and the check for a batch published before.

A protocol is a generator without any I/O. It yields the step to take next, receives the answer by `send`, and returns
when the batch is done. Its caller takes the steps. A sink takes them through a `transport` to Kafka. The lab's model
checker takes them in every order in which the steps of several drivers can interleave. A crash test stops before and
after each step.

    look          read the last committed marker, without waiting for open transactions
    wait and look wait until each transaction that is open now has been committed or aborted, and read the marker
    fence         get a new epoch: Kafka aborts the sink's open transaction, and refuses its older producers
    read marker   read the marker under that epoch
    rows          write the rows in a transaction; the answer is False if they are to be written again
    abort         abort that transaction, and get the next epoch
    marker        write "this batch was published" in the same transaction, and wait until it is acknowledged
    commit        commit the transaction: rows and marker become visible together, or never
    next epoch    get the epoch for the next batch, or start to get it in the background
    drain         let Spark compute the rows of a batch that is published, and discard them
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Literal, get_args

from exactly_once_kafka.plan import goes_back, is_copy, shown

Step = Literal[
    "look", "wait and look", "fence", "read marker", "rows", "abort", "marker", "commit", "next epoch", "drain"
]
STEPS: tuple[Step, ...] = get_args(Step)
Protocol = Generator[Step, Any, None]

ADOPTED = "adopted"  # in a marker, instead of a plan: an operator has declared the batch published


@dataclass(frozen=True)
class Batch:
    """Batch `batch_id` of the query `query_id`, with the plan that Spark made for it and for the batch before."""

    query_id: str
    batch_id: int
    plan: str
    previous_plan: str | None = None  # None for batch 0


@dataclass(frozen=True)
class Marker:
    """Says that this batch was the last to be published. `plan` is its plan, or ADOPTED."""

    batch_id: int
    query_id: str
    plan: str

    @classmethod
    def of(cls, batch: Batch) -> Marker:
        return cls(batch.batch_id, batch.query_id, batch.plan)


class MarkerMismatch(ValueError):
    """The marker does not fit the batch: it must neither be written nor count as published. The message says why."""


def next_step(protocol: Protocol, answer: Any) -> Step | None:
    """Send the answer to the last step, and return the step to take next; None at the end.

    Before the first step, `answer` is None. Raises what the protocol raises.
    """
    try:
        return protocol.send(answer)
    except StopIteration:
        return None


def exactly_once(batch: Batch, has_epoch: bool) -> Protocol:
    """Publish a batch once, however often it is tried.

    `has_epoch`: the driver has an epoch under which nothing was written yet, or has requested one. It has none for
    the first batch of a run, after a failure, and after a long pause.

    Raises MarkerMismatch if the batch must neither be written nor count as published.
    """
    if not has_epoch:
        # 1. Look before fencing. A query that is refused, or whose batch is published, must not fence the query to
        #    which the name belongs.
        if (yield from _is_visible(batch)):
            yield "drain"
            return
        # 2. Fence. Of several drivers, only the last one to fence can write from here on. And if a commit request of an
        #    earlier transaction arrives late, Kafka refuses its old epoch, so it cannot commit a part of this one.
        yield "fence"
    # 3. Read the marker once more. Another driver must get a newer epoch before it can change the marker, and from then
    #    on Kafka commits nothing that this driver writes.
    if is_published((yield "read marker"), batch):
        # 4. The batch is published, but Spark has not noted that in its commit log. Spark must still execute the batch:
        #    otherwise the query's state would lack it.
        yield "drain"
        return
    # 5. Write the rows. If Kafka did not answer a task that writes, or executors turn out to be unable to write, abort
    #    and write the rows again. Requests of the first tasks may still arrive: the abort gives a new epoch, so Kafka
    #    refuses them. A driver that was fenced meanwhile gets no epoch from the abort. So a driver that continues need
    #    not read the marker again. If Kafka does not answer for too long, the transport raises, which ends this loop.
    while not (yield "rows"):
        yield "abort"
    # 6. The marker goes into the same transaction, and so becomes visible together with the rows.
    yield "marker"
    yield "commit"
    # 7. Get the next epoch. Each transaction has an epoch of its own, so that Kafka refuses a late commit of another
    #    one. The epoch comes with the answer to the commit, or a new producer requests it in the background while Spark
    #    computes the next batch.
    yield "next epoch"


def _is_visible(batch: Batch) -> Generator[Step, Any, bool]:
    """Tell whether the marker shows that the batch is published. Other drivers are not fenced."""
    try:
        return is_published((yield "look"), batch)
    except MarkerMismatch:
        # An earlier driver's transaction may still be open, and be committed. Wait for its end before refusing.
        return is_published((yield "wait and look"), batch)


def is_published(marker: Marker | None, batch: Batch) -> bool:
    """Tell whether the batch was published before. False means that it may be written now.

    For batch 0, `marker` is None if nothing was ever published: the step `look` verifies that by a note in the
    checkpoint. Raises MarkerMismatch if the batch must neither be written nor count as published.
    """
    if marker is None:
        if batch.batch_id == 0:
            return False
        raise MarkerMismatch("no marker: nothing was ever committed under this name, or its marker was deleted")
    if marker.query_id != batch.query_id:
        raise MarkerMismatch(f"batch {marker.batch_id} was committed by another query ({marker.query_id})")
    if marker.batch_id == batch.batch_id:
        if marker.plan in (batch.plan, ADOPTED):
            return True
        raise MarkerMismatch(_other_plan(batch.batch_id, marker.plan, "is planned now", batch.plan))
    last = batch.batch_id - 1
    if marker.batch_id == last:
        if marker.plan in (batch.previous_plan, ADOPTED):
            return False
        raise MarkerMismatch(_other_plan(last, marker.plan, "is in the checkpoint", batch.previous_plan))
    if marker.batch_id < last and is_copy(batch.previous_plan, marker.plan):
        return False  # Spark has repartitioned the state, and the batches in between read nothing
    found = f"the last batch committed is {marker.batch_id}"
    if marker.batch_id < last and goes_back(batch.previous_plan, marker.plan):
        raise MarkerMismatch(
            f"{found}, and batch {last} of the checkpoint goes back to before it, as when Spark repartitions the state "
            f"of a query whose last batch it has not noted: the rows of batch {marker.batch_id} would come again\n"
            f"{_both(marker.plan, f'batch {last}:', batch.previous_plan)}"
        )
    if marker.batch_id < last:
        found += f", and batch {last} of the checkpoint did not reach the sink, or its rows were not committed"
    raise MarkerMismatch(found)


def _other_plan(batch_id: int, committed: str, how: str, planned: str | None) -> str:
    return f"another batch {batch_id} was committed than the one that {how}\n{_both(committed, 'this one:', planned)}"


def _both(committed: str, other: str, planned: str | None) -> str:
    return f"{' ':12}committed: {shown(committed, planned)}\n{' ':12}{other:10} {shown(planned, committed)}"
