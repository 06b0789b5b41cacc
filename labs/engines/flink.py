"""Apache Flink: the lesson that this lab was made after, in SQL, on a cluster within one JVM."""

from __future__ import annotations

from pathlib import Path

from labs.engines.engine import COMMIT_SECONDS, NAME, TRANSACTION_TIMEOUT_MS, Setting, Work, as_options
from labs.engines.environments import FLINK
from labs.engines.program import TEMPORARY, EngineProcess, python_command
from labs.equipment.jars import flink_connector_jars
from labs.equipment.java import find_java
from labs.equipment.node import QUICK_SPARK
from labs.pipeline.records import CLOSING_IP, LATENESS_MS, WINDOW_MS

PROGRAM = Path(__file__).with_name("flink_program.py")
MEMORY = ("-Xmx1g",)
OF_SINK, OF_SOURCE = "sink: ", "source: "


class FlinkEngine:
    """Flink's Table API. A restart goes on from the latest checkpoint that is complete."""

    name = "flink"
    title = "Apache Flink"
    promise = (
        "Records are written in a transaction that is committed on a checkpoint; data may be lost if the transaction "
        "times out between a checkpoint and the restart."
    )
    installed_apart = True
    notes = "checkpoints/*/chk-*/_metadata"

    def settings(
        self,
        exactly_once: bool,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        commit_seconds: int = COMMIT_SECONDS,
    ) -> tuple[Setting, ...]:
        """Return the job's configuration, and the options of its tables with `source: ` and `sink: ` before them."""
        shared = (
            Setting("execution.checkpointing.interval", f"{commit_seconds} s", "what is committed is visible then"),
            Setting("execution.checkpointing.mode", "EXACTLY_ONCE", "the state counts each record once, in both cases"),
            Setting(
                "execution.checkpointing.externalized-checkpoint-retention",
                "RETAIN_ON_CANCELLATION",
                "a job that is killed is started again by hand, from a checkpoint that must still be there",
            ),
            Setting("restart-strategy.type", "none", "whoever starts it again is outside, as with the other engines"),
            Setting("parallelism.default", "1", "one partition, one core"),
            Setting(f"{OF_SOURCE}scan.startup.mode", "earliest-offset", "without a checkpoint; one overrules it"),
            Setting(f"{OF_SOURCE}format", "raw", "the record's value is split in SQL"),
            Setting(f"{OF_SINK}format", "json", "the lab's result record"),
            Setting(f"{OF_SINK}key.format", "raw", "keyed by IP, as the lab's results are"),
            Setting(f"{OF_SINK}key.fields", "ip", "see key.format"),
        )
        if not exactly_once:
            why = "the control: records are flushed before a checkpoint, and written again after a restart"
            return (*shared, Setting(f"{OF_SINK}sink.delivery-guarantee", "at-least-once", why))
        return (
            *shared,
            Setting(f"{OF_SINK}sink.delivery-guarantee", "exactly-once", "two-phase commit: flushed at the barrier, "
                    "committed when the checkpoint is complete"),
            Setting(
                f"{OF_SINK}sink.transactional-id-prefix",
                NAME,
                "unique to the job, or two jobs abort each other's transactions",
            ),
            Setting(
                f"{OF_SINK}sink.transaction-naming-strategy",
                "POOLING",
                "after a restart Kafka is asked which transactions are open, and those are aborted: none blocks the "
                "readers until its timeout. The default, INCREMENTING, is for Kafka before 3.0 and leaves one name "
                "per checkpoint in the broker for 7 days",
            ),
            Setting(
                f"{OF_SINK}properties.transaction.timeout.ms",
                str(transaction_timeout_ms),
                "more than a checkpoint and a restart last, or data is lost; at most the broker's "
                "transaction.max.timeout.ms of 15 minutes, which the default of one hour exceeds",
            ),
        )  # fmt: skip

    def start(self, work: Work) -> EngineProcess:
        """Start from the latest checkpoint, or from the beginning of the log. Raises NotInstalled, JarRefused."""
        java = find_java()
        return EngineProcess(
            python_command(FLINK.python, PROGRAM, self.order(work)),
            work.directory,
            JAVA_HOME=str(java.home),
            JVM_ARGS=" ".join(MEMORY if work.long_run else (*QUICK_SPARK, *MEMORY)),  # as the lab's own job has it
            # Java's own variable, since Flink's is cut at every space.
            JDK_JAVA_OPTIONS=f'"-Djava.io.tmpdir={work.directory / TEMPORARY}"',
            FLINK_LOG_DIR=str(work.directory),
        )

    def order(self, work: Work) -> dict[str, object]:
        """Return what the program is told."""
        settings = self.settings(work.exactly_once, work.transaction_timeout_ms, work.commit_seconds)
        checkpoints = work.directory / "checkpoints"
        configuration = {each.name: each.value for each in settings if ": " not in each.name}
        configuration |= {
            "execution.checkpointing.dir": f"file://{checkpoints}",  # as it is: Flink would take %20 for a name
            "io.tmp.dirs": str(work.directory / TEMPORARY),
            "pipeline.jars": ";".join(jar.resolve().as_uri() for jar in flink_connector_jars()),
        }
        if latest := latest_checkpoint(checkpoints):
            configuration["execution.state-recovery.path"] = f"file://{latest}"
        kafka = {"connector": "kafka", "properties.bootstrap.servers": work.bootstrap_servers}
        sink = {**kafka, "topic": work.sink_topic, **as_options(settings, OF_SINK)}
        sink = {name: value.replace(NAME, work.name) for name, value in sink.items()}
        source = {**kafka, "topic": work.source_topic, "properties.group.id": work.name}
        return {
            "configuration": configuration,
            "source": source | as_options(settings, OF_SOURCE),
            "sink": sink,
            "window_ms": WINDOW_MS,
            "lateness_ms": LATENESS_MS,
            "closing_ip": CLOSING_IP,
        }


def latest_checkpoint(directory: Path) -> Path | None:
    """Return the newest checkpoint that is complete, below the directories that each start of the job makes."""
    complete = [file.parent for file in directory.glob("*/chk-*/_metadata")]
    return max(complete, key=lambda each: int(each.name.removeprefix("chk-")), default=None)
