"""How a sink publishes each batch exactly once: the steps in their order, and whether a batch was published before.

A protocol is a generator without any I/O. It yields the step to take next, receives the answer by `send`, and returns
when the batch is done. Its caller takes the steps: a sink by a `transport` to Kafka, the lab's model checker in every
order in which steps of several drivers can interleave, and a crash test with a stop before and after each one.

    look          read the last committed marker, without waiting for open transactions
    wait and look wait until each transaction that is open now has been committed or aborted, and read the marker
    fence         get a new epoch: Kafka aborts the open transaction of this name, and refuses every older producer
    read marker   read the marker under that epoch
    rows          write the rows in a transaction; the answer is False if they are to be written again
    abort         end that transaction without publishing it, and get the next epoch
    marker        write "this batch was published" in the same transaction, and wait until it is acknowledged
    commit        end the transaction: rows and marker become visible at once, or never
    next epoch    get the next batch's epoch ready
    drain         execute the batch's plan without publishing its rows
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
    """The batch must be neither written nor taken for published. The message says what was found."""


def next_step(protocol: Protocol, answer: Any) -> Step | None:
    """Send the answer to the last step, and return the step to take next; None at the end.

    The first answer of all is None. Raises what the protocol raises.
    """
    try:
        return protocol.send(answer)
    except StopIteration:
        return None


def exactly_once(batch: Batch, has_epoch: bool) -> Protocol:
    """Publish a batch once, however often it is tried.

    `has_epoch`: the driver has an epoch under which nothing was written yet, or has requested one. It has none for
    the first batch of a run, after a failure, and after a long pause.

    Raises MarkerMismatch where the batch must neither be written nor be taken for published.
    """
    if not has_epoch:
        # 1. Look before fencing. A query that is refused, or whose batch is published, must not fence the query that
        #    the name belongs to.
        if (yield from _is_visible(batch)):
            yield "drain"
            return
        # 2. Fence. Of several drivers, only the last one to fence can write from here on. And a commit of an earlier
        #    transaction that arrives late has an old epoch: Kafka refuses it, and it cannot publish half of this one.
        yield "fence"
    # 3. Read the marker once more. Another driver that changes it from here on must get a newer epoch first, and then
    #    Kafka commits nothing that this driver writes.
    if is_published((yield "read marker"), batch):
        # 4. The batch is published, and only Spark does not know. Spark must still execute it: otherwise the query's
        #    state would lack this batch.
        yield "drain"
        return
    # 5. Write the rows. If Kafka did not answer one of the tasks that write, write them again. Requests of those tasks
    #    may still arrive: the abort gives a new epoch, so Kafka refuses them. A driver that was fenced meanwhile gets
    #    no epoch, so the marker of 3 still counts. The transport ends this loop by an exception when Kafka has been
    #    silent for too long.
    while not (yield "rows"):
        yield "abort"
    # 6. The marker goes into the same transaction, and so becomes visible together with the rows.
    yield "marker"
    yield "commit"
    # 7. Get the next epoch: each transaction has one of its own, so that a late commit fits no other one. It comes with
    #    the answer to the commit, or in the background while Spark computes the next batch.
    yield "next epoch"


def _is_visible(batch: Batch) -> Generator[Step, Any, bool]:
    """Tell whether the batch is published, as far as the marker shows without fencing other drivers."""
    try:
        return is_published((yield "look"), batch)
    except MarkerMismatch:
        # The last driver's commit may be on its way. Wait for it before refusing.
        return is_published((yield "wait and look"), batch)


def is_published(marker: Marker | None, batch: Batch) -> bool:
    """Tell whether the batch was published before. Raises MarkerMismatch where it must not be written either.

    Before batch 0, None means that nothing was ever published: the step `look` makes sure of that, by a note in the
    checkpoint.
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
        return False  # Spark has repartitioned the state, and nothing was read in between
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
