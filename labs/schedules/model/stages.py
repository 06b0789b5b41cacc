"""The stages of the course, each as the program of one batch, and what may go wrong around it."""

from __future__ import annotations

from labs.schedules.model.by_executors import ByExecutors
from labs.schedules.model.downstream import OFFSET_FIRST, OFFSET_LAST, TOGETHER, DownstreamStage
from labs.schedules.model.kafka import Stage
from labs.schedules.model.shared_transaction import SharedStage
from labs.schedules.model.spare import WithSpare
from labs.schedules.model.two_phase import COMMIT_FIRST, IN_ORDER, TwoPhaseStage
from labs.schedules.model.variants import AsBuilt, Witnessed

PLAIN = ("plan", "rows", "note")
TRANSACTION = ("plan", "fence", "rows", "commit", "note")
SINK = ("plan", "fence", "read marker", "rows", "marker", "commit", "note")
AS_BUILT = ("plan", "look", "fence", "read marker", "rows", "marker", "commit", "fence ahead", "note")
MARKER_FIRST = ("plan", "read marker", "fence", "rows", "marker", "commit", "note")

OLD_CHECKPOINT = ("restore and start",)
OLD_MARKER = ("forget the marker",)

MODELS: dict[str, Stage | TwoPhaseStage | DownstreamStage | SharedStage] = {
    stage.name: stage
    for stage in (
        Stage("at least once", PLAIN, idempotent=False),
        Stage("idempotent producer", PLAIN),
        Stage("transactions, no marker", TRANSACTION),
        Stage("marker read before the epoch", MARKER_FIRST),
        Stage("done batch not drained", SINK, drains=False),
        Stage("one epoch for all batches", SINK, keeps_epoch=True),
        Stage("marker without the plan", SINK, marker_says_plan=False, luck=OLD_CHECKPOINT),
        Stage("marker that expires", SINK, marker_says_plan=False, luck=OLD_MARKER),
        Stage("the sink", SINK),
        Stage("the sink, older checkpoint", SINK, luck=OLD_CHECKPOINT),
        Witnessed("the sink, marker deleted", SINK, luck=OLD_MARKER),
        AsBuilt("the sink as built", AS_BUILT, keeps_epoch=True),
        WithSpare("the sink with a spare", AS_BUILT, keeps_epoch=True),
        Stage("an epoch with each commit", SINK, keeps_epoch=True, epoch_by_commit=True),
        TwoPhaseStage("two phases", IN_ORDER),
        TwoPhaseStage("two phases, committed undecided", COMMIT_FIRST),
        TwoPhaseStage("two phases, nobody recovers", IN_ORDER, recovers=False),
        TwoPhaseStage("two phases, with a timeout", IN_ORDER, expires=True),
        DownstreamStage("offset first", OFFSET_FIRST),
        DownstreamStage("offset last", OFFSET_LAST),
        DownstreamStage("offset last, keyed", OFFSET_LAST, keyed=True),
        DownstreamStage("offset in the transaction", TOGETHER),
        SharedStage("shared transaction"),
        SharedStage("shared, committed uncounted", counts=False),
        SharedStage("shared, rows without numbers", numbers_rows=False),
        ByExecutors("the sink by executors"),
        ByExecutors("by executors, uncounted", counts=False, luck=("give up",)),
        ByExecutors("by executors, tasks retried", retries=True),
        ByExecutors("by executors, partition shared", apart=False),
        ByExecutors("by executors, epoch kept", epoch_by_commit=False),
        ByExecutors("by executors, silence not aborted", aborts_first=False),
        ByExecutors("by executors, abort keeps the epoch", epoch_by_abort=False),
    )
}
