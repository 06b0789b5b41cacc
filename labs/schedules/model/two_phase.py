"""Two-phase commit by hand: a transaction for each batch, a decision on disk, and a next job that carries it out.

One job runs at a time, as `recover` demands: when a job starts, the job before it is dead. Kafka carries a request out
at once, unless its job has died. So a job may crash between any two steps, and a transaction may time out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from labs.schedules.model.state import put
from labs.schedules.schedule import Event

IN_ORDER = ("begin", "rows", "decide", "finish")
COMMIT_FIRST = ("begin", "rows", "finish", "decide")


class State(NamedTuple):
    """The job and its step in a batch; each batch's transaction; and what the log of decisions says."""

    job: int = 1
    alive: bool = True
    batch: int = 0
    step: int = 0
    row: int = 0
    sent: tuple[tuple[int, ...], ...] = ()  # the records in each batch's newest transaction
    fates: tuple[str, ...] = ()  # of each batch's newest transaction: none, open, committed or aborted
    topic: tuple[
        int, ...
    ] = ()  # the committed records; an open transaction before them may still hide them from readers
    decided: int = -1  # the last batch whose commit is decided: the next job reads on behind it
    expiries: int = 1


@dataclass(frozen=True)
class TwoPhaseStage:
    """`recovers`: a job first carries out what was decided. `expires`: Kafka aborts what is open for too long."""

    name: str
    program: tuple[str, ...]
    recovers: bool = True
    expires: bool = False
    batches: int = 2
    rows: int = 2
    drivers: int = 3

    def start(self) -> State:
        return State(sent=((),) * self.batches, fates=("none",) * self.batches)

    def moves(self, state: State) -> Iterator[tuple[Event, State]]:
        if state.alive and state.batch < self.batches:
            yield self._acts(state)
        if state.job < self.drivers:
            yield self._restarts(state)
        if self.expires and state.expiries:
            for batch, fate in enumerate(state.fates):
                if fate == "open":
                    aborted = _ended(state, batch, "aborted")
                    yield Event("broker", "time out", batch), aborted._replace(expiries=state.expiries - 1)

    def _acts(self, state: State) -> tuple[Event, State]:
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

    def _restarts(self, state: State) -> tuple[Event, State]:
        """Start a job behind the last decision. It first commits what was decided, and aborts the rest."""
        state = state._replace(job=state.job + 1, alive=True, batch=state.decided + 1, step=0, row=0)
        if self.recovers:
            for batch, fate in enumerate(state.fates):
                if fate == "open":
                    state = _ended(state, batch, "committed" if batch <= state.decided else "aborted")
        return Event("supervisor", "start", state.batch, whose=f"driver {state.job}"), state

    def anomaly(self, state: State) -> str | None:
        """Name the anomaly: a record is doubled, a decided one is lost, or readers wait for ever."""
        if len(set(state.topic)) < len(state.topic):
            return "doubled"
        if "aborted" in state.fates[: state.decided + 1]:
            return "lost"
        # A job that does not recover never ends an open transaction of an earlier batch, and readers wait for that.
        earlier = state.fates[: state.batch]
        return "stuck" if state.alive and not self.recovers and "open" in earlier else None

    def ending(self, state: State) -> Iterator[tuple[Event, State]]:
        return iter(())

    def visible(self, state: State) -> tuple[int, ...]:
        return state.topic


def _ended(state: State, batch: int, fate: str) -> State:
    topic = (*state.topic, *state.sent[batch]) if fate == "committed" else state.topic
    return state._replace(fates=put(state.fates, batch, fate), topic=topic)
