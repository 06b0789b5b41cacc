"""The lab's own job: Spark with the exactly-once sink. The control differs only in its at-least-once sink."""

from __future__ import annotations

from typing import Any

from labs.engines.engine import COMMIT_SECONDS, TRANSACTION_TIMEOUT_MS, Running, Setting, Work, as_options
from labs.faults.job import JobProcess

HOW_OFTEN = (
    "seconds between two micro-batches, as often as the others commit; in a long run 0: one after the other, as Spark "
    "does by default"
)


class SparkEngine:
    """`python -m labs run` with a micro-batch every `commit_seconds`; in a long run, one batch after the other."""

    name = "spark"
    title = "Spark, with the lab's sink"
    promise = (
        "A micro-batch is replayed with the same input; foreachBatch alone is at least once, the sink makes it once."
    )
    installed_apart = False
    notes = "checkpoint/commits/[0-9]*"

    def settings(
        self,
        exactly_once: bool,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        commit_seconds: int = COMMIT_SECONDS,
    ) -> tuple[Setting, ...]:
        """Return the options of `python -m labs run`."""
        shared = (
            Setting("trigger", str(commit_seconds), HOW_OFTEN),
            Setting("starting", "earliest", "the log is written before the job starts; used only without a checkpoint"),
        )
        if not exactly_once:
            return (
                Setting("sink", "at-least-once", "the control: it writes rows, then Spark its commit log"),
                *shared,
            )
        return (
            Setting("sink", "exactly-once", "one transaction per micro-batch, with a marker that names the batch"),
            Setting(
                "transaction-timeout-ms",
                str(transaction_timeout_ms),
                "a batch that takes longer is aborted and replayed, without loss",
            ),
            *shared,
        )

    def start(self, work: Work) -> Running:
        """Start the job on its checkpoint."""
        between_batches = 0 if work.long_run else work.commit_seconds
        settings = self.settings(work.exactly_once, work.transaction_timeout_ms, between_batches)
        options: dict[str, Any] = {name.replace("-", "_"): value for name, value in as_options(settings).items()}
        return JobProcess(
            bootstrap_servers=work.bootstrap_servers,
            checkpoint=work.directory / "checkpoint",
            source_topic=work.source_topic,
            sink_topic=work.sink_topic,
            name=work.name,
            compiler="all" if work.long_run else "quick",
            **options,
        )
