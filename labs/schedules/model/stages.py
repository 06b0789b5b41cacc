"""The stages of the course: each has the protocol of a batch, and what may go wrong around it."""

from __future__ import annotations

from exactly_once_kafka.protocol import exactly_once
from labs.pipeline import protocols
from labs.schedules.model.downstream import OFFSET_FIRST, OFFSET_LAST, TOGETHER, DownstreamStage
from labs.schedules.model.executors import ByExecutors
from labs.schedules.model.stage import Stage, WithSpare
from labs.schedules.model.two_phase import COMMIT_FIRST, IN_ORDER, TwoPhaseStage

OLD_CHECKPOINT = ("restore and start",)
OLD_MARKER = ("forget the marker",)

MODELS: dict[str, Stage | TwoPhaseStage | DownstreamStage] = {
    stage.name: stage
    for stage in (
        Stage("at least once", protocols.at_least_once, idempotent=False),
        Stage("idempotent producer", protocols.at_least_once),
        Stage("transactions, no marker", protocols.transactions),
        Stage("marker read before the epoch", protocols.marker_read_before_fencing),
        Stage("done batch not drained", protocols.done_batch_not_drained),
        Stage("one epoch for all batches", protocols.one_epoch_for_all_batches),
        Stage("marker without the plan", protocols.marker_known_by_its_number, faults=OLD_CHECKPOINT),
        Stage("marker that expires", protocols.no_look_before_fencing, faults=OLD_MARKER),
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
        ByExecutors("by executors, uncounted", protocols.rows_not_counted, faults=("give up",)),
        ByExecutors("by executors, tasks retried", exactly_once, retries=True),
        ByExecutors("by executors, partition shared", exactly_once, apart=False),
        ByExecutors("by executors, epoch kept", exactly_once, epoch_by_commit=False),
        ByExecutors("by executors, silence not aborted", protocols.silence_not_aborted),
        ByExecutors("by executors, abort keeps the epoch", exactly_once, epoch_by_abort=False),
    )
}
