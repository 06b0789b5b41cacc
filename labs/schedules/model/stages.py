"""The stages of the course, each with the faults that the model tries.

Two kinds of stage are not a sink that writes batches, and have small models of their own here: two-phase commit by
hand, and a consumer of the results.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from exactly_once_kafka.protocol import exactly_once
from labs.pipeline import broken_protocols
from labs.schedules.model.drivers_and_network import Stage, WithSpare
from labs.schedules.model.executors import ByExecutors
from labs.schedules.model.state import put
from labs.schedules.schedule import Event

IN_ORDER = ("begin", "rows", "decide", "finish")
COMMIT_FIRST = ("begin", "rows", "finish", "decide")


class TwoPhaseState(NamedTuple):
    """The job and its step in a batch; each batch's transaction; and what the log of decisions says."""

    job: int = 1
    alive: bool = True
    batch: int = 0
    step: int = 0
    row: int = 0
    sent: tuple[tuple[int, ...], ...] = ()  # the records in each batch's newest transaction
    fates: tuple[str, ...] = ()  # of each batch's newest transaction: none, open, committed or aborted
    # The committed records; an open transaction before them may still hide them from readers.
    topic: tuple[int, ...] = ()
    decided: int = -1  # the last batch whose commit is decided: the next job reads on behind it
    expiries: int = 1


@dataclass(frozen=True)
class TwoPhaseStage:
    """Two-phase commit by hand: a transaction for each batch, a decision on disk, and a next job that carries it out.

    One job runs at a time, as `recover` demands: when a job starts, the job before it is dead. Kafka carries a request
    out at once, unless its job has died. So a job may crash between any two steps, and a transaction may time out.
    `recovers`: a job first carries out what was decided. `expires`: Kafka aborts what is open for too long.
    """

    name: str
    program: tuple[str, ...]
    recovers: bool = True
    expires: bool = False
    batches: int = 2
    rows: int = 2
    drivers: int = 3

    def start(self) -> TwoPhaseState:
        return TwoPhaseState(sent=((),) * self.batches, fates=("none",) * self.batches)

    def moves(self, state: TwoPhaseState) -> Iterator[tuple[Event, TwoPhaseState]]:
        if state.alive and state.batch < self.batches:
            yield self._acts(state)
        if state.job < self.drivers:
            yield self._restarts(state)
        if self.expires and state.expiries:
            for batch, fate in enumerate(state.fates):
                if fate == "open":
                    aborted = _ended(state, batch, "aborted")
                    yield Event("broker", "time out", batch), aborted._replace(expiries=state.expiries - 1)

    def _acts(self, state: TwoPhaseState) -> tuple[Event, TwoPhaseState]:
        batch, step, actor = state.batch, self.program[state.step], f"driver {state.job}"
        following = state._replace(step=state.step + 1, row=0)
        if following.step == len(self.program):
            following = following._replace(batch=batch + 1, step=0)
        if step == "begin":
            fates = put(following.fates, batch, "open")
            return Event(actor, "fence", batch, answer="ok"), following._replace(
                fates=fates, sent=put(state.sent, batch, ())
            )
        if step == "rows":
            record = batch * self.rows + state.row
            if state.fates[batch] != "open":
                return Event(actor, "row", batch, record, answer="fenced"), state._replace(alive=False)
            sent = put(state.sent, batch, (*state.sent[batch], record))
            following = following if state.row + 1 == self.rows else state._replace(row=state.row + 1)
            return Event(actor, "row", batch, record, answer="ok"), following._replace(sent=sent)
        if step == "decide":
            return Event(actor, "decide", batch), following._replace(decided=max(state.decided, batch))
        if state.fates[batch] != "open":
            return Event(actor, "commit", batch, answer="it was aborted"), state._replace(alive=False)
        return Event(actor, "commit", batch, answer="ok"), _ended(following, batch, "committed")

    def _restarts(self, state: TwoPhaseState) -> tuple[Event, TwoPhaseState]:
        """Start a job behind the last decision. It first commits what was decided, and aborts the rest."""
        state = state._replace(job=state.job + 1, alive=True, batch=state.decided + 1, step=0, row=0)
        if self.recovers:
            for batch, fate in enumerate(state.fates):
                if fate == "open":
                    state = _ended(state, batch, "committed" if batch <= state.decided else "aborted")
        return Event("supervisor", "start", state.batch, whose=f"driver {state.job}"), state

    def anomaly(self, state: TwoPhaseState) -> str | None:
        """Name the anomaly: a record is doubled, a decided one is lost, or readers wait for ever."""
        if len(set(state.topic)) < len(state.topic):
            return "doubled"
        if "aborted" in state.fates[: state.decided + 1]:
            return "lost"
        # A job that does not recover never ends an open transaction of an earlier batch, and readers wait for that.
        earlier = state.fates[: state.batch]
        return "stuck" if state.alive and not self.recovers and "open" in earlier else None

    def ending(self, state: TwoPhaseState) -> Iterator[tuple[Event, TwoPhaseState]]:
        return iter(())

    def visible(self, state: TwoPhaseState) -> tuple[int, ...]:
        return state.topic


def _ended(state: TwoPhaseState, batch: int, fate: str) -> TwoPhaseState:
    topic = (*state.topic, *state.sent[batch]) if fate == "committed" else state.topic
    return state._replace(fates=put(state.fates, batch, fate), topic=topic)


OFFSET_FIRST = ("read", "commit the offset", "write")
OFFSET_LAST = ("read", "write", "commit the offset")
TOGETHER = ("read", "write with the offset")


class Consumer(NamedTuple):
    """A consumer: its record, and its step there. It is dead once it finds that another consumer was first."""

    record: int = 0
    step: int = 0
    alive: bool = True


class ConsumerState(NamedTuple):
    consumers: tuple[Consumer, ...] = (Consumer(),)
    noted: int = 0  # the next record to read
    written: tuple[int, ...] = ()


@dataclass(frozen=True)
class DownstreamStage:
    """A consumer reads results from Kafka, writes them somewhere, and commits its offset.

    These are two writes to two places, and a crash may come between them. A second consumer may start while the first
    one only sleeps. `keyed`: a write replaces what was written under the same key, so that it may be repeated.
    """

    name: str
    program: tuple[str, ...]
    keyed: bool = False
    rows: int = 3
    drivers: int = 2
    batches: int = 1

    def start(self) -> ConsumerState:
        return ConsumerState()

    def moves(self, state: ConsumerState) -> Iterator[tuple[Event, ConsumerState]]:
        for n, consumer in enumerate(state.consumers):
            if consumer.alive and consumer.record < self.rows * self.batches:
                yield self._acts(state, n, consumer)
        if len(state.consumers) < self.drivers:
            fresh = (*state.consumers, Consumer(state.noted))
            number = len(fresh)
            yield (
                Event("supervisor", "start at record", row=state.noted, whose=f"consumer {number}"),
                state._replace(consumers=fresh),
            )

    def _acts(self, state: ConsumerState, n: int, consumer: Consumer) -> tuple[Event, ConsumerState]:
        actor, step, record = f"consumer {n + 1}", self.program[consumer.step], consumer.record
        following = consumer._replace(step=consumer.step + 1)
        if following.step == len(self.program):
            following = Consumer(record + 1)
        written = state.written if self.keyed and record in state.written else (*state.written, record)
        answer = ""
        if step == "write":
            state = state._replace(written=written)
        elif step == "commit the offset":
            state = state._replace(noted=record + 1)
        elif step == "write with the offset":
            if state.noted == record:  # both or neither: if another consumer was first, the transaction fails
                state = state._replace(noted=record + 1, written=written)
            else:
                answer, following = "another was first", consumer._replace(alive=False)
        consumers = put(state.consumers, n, following)
        return Event(actor, step, row=record, answer=answer), state._replace(consumers=consumers)

    def anomaly(self, state: ConsumerState) -> str | None:
        """Name the anomaly: a record is written twice, or noted and never written."""
        if len(set(state.written)) < len(state.written):
            return "doubled"
        # An older consumer may sleep for ever. Then nobody writes the records before the newest consumer's position.
        return "lost" if set(range(state.consumers[-1].record)) - set(state.written) else None

    def ending(self, state: ConsumerState) -> Iterator[tuple[Event, ConsumerState]]:
        return iter(())

    def visible(self, state: ConsumerState) -> tuple[int, ...]:
        return state.written


OLD_CHECKPOINT = ("restore and start",)
OLD_MARKER = ("forget the marker",)

MODELS: dict[str, Stage | TwoPhaseStage | DownstreamStage] = {
    stage.name: stage
    for stage in (
        Stage("at least once", broken_protocols.at_least_once, idempotent=False),
        Stage("idempotent producer", broken_protocols.at_least_once),
        Stage("transactions, no marker", broken_protocols.transactions),
        Stage("marker read before the epoch", broken_protocols.marker_read_before_fencing),
        Stage("done batch not drained", broken_protocols.done_batch_not_drained),
        Stage("one epoch for all batches", broken_protocols.one_epoch_for_all_batches),
        Stage("marker without the plan", broken_protocols.marker_known_by_its_number, faults=OLD_CHECKPOINT),
        Stage("marker that expires", broken_protocols.no_look_before_fencing, faults=OLD_MARKER),
        Stage("the sink", exactly_once),
        Stage("the sink, older checkpoint", exactly_once, faults=OLD_CHECKPOINT),
        Stage("the sink, marker deleted", exactly_once, faults=OLD_MARKER),
        WithSpare("the sink with a spare", exactly_once),
        Stage("an epoch with each commit", exactly_once, epoch_by_commit=True),
        TwoPhaseStage("two phases", IN_ORDER),
        TwoPhaseStage("two phases, committed undecided", COMMIT_FIRST),
        TwoPhaseStage("two phases, nobody recovers", IN_ORDER, recovers=False),
        TwoPhaseStage("two phases, with a timeout", IN_ORDER, expires=True),
        DownstreamStage("offset first", OFFSET_FIRST),
        DownstreamStage("offset last", OFFSET_LAST),
        DownstreamStage("offset last, keyed", OFFSET_LAST, keyed=True),
        DownstreamStage("offset in the transaction", TOGETHER),
        ByExecutors("the sink by executors", exactly_once),
        ByExecutors("by executors, uncounted", broken_protocols.rows_not_counted, faults=("give up",)),
        ByExecutors("by executors, tasks retried", exactly_once, retries=True),
        ByExecutors("by executors, partition shared", exactly_once, apart=False),
        ByExecutors("by executors, epoch kept", exactly_once, epoch_by_commit=False),
        ByExecutors("by executors, silence not aborted", broken_protocols.silence_not_aborted),
        ByExecutors("by executors, abort keeps the epoch", exactly_once, epoch_by_abort=False),
    )
}
