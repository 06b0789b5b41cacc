"""Apache Flink: the IP count in SQL, as in Flink's own lesson, on a cluster within one JVM."""

from __future__ import annotations

from pathlib import Path

from labs.engines.engine import (
    COMMIT_SECONDS,
    NAME,
    READ_COMMITTED,
    TEMPORARY,
    TRANSACTION_TIMEOUT_MS,
    EngineProcess,
    Setting,
    Work,
    as_options,
    python_command,
)
from labs.engines.environment import FLINK
from labs.equipment.jars import flink_connector_jars
from labs.equipment.java import find_java
from labs.equipment.node import QUICK_SPARK
from labs.pipeline.records import CLOSING_IP, LATENESS_MS, WINDOW_MS

PROGRAM = Path(__file__).with_name("flink_program.py")
MEMORY = ("-Xmx1g",)
OF_SINK, OF_SOURCE = "sink: ", "source: "


class FlinkEngine:
    """Flink's Table API. A restart resumes from the latest complete checkpoint."""

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
        """Return the job's configuration, and the options of its tables, prefixed with `source: ` and `sink: `."""
        shared = (
            Setting("execution.checkpointing.interval", f"{commit_seconds} s", "each checkpoint makes results visible"),
            Setting("execution.checkpointing.mode", "EXACTLY_ONCE", "the state counts each record once, in both cases"),
            Setting(
                "execution.checkpointing.externalized-checkpoint-retention",
                "RETAIN_ON_CANCELLATION",
                "the next start of a killed job needs its last checkpoint",
            ),
            Setting("restart-strategy.type", "none", "the lab itself restarts a killed engine, this one as the others"),
            Setting("parallelism.default", "1", "as many as the source has partitions, and the machine has cores"),
            Setting(f"{OF_SOURCE}scan.startup.mode", "earliest-offset", "used only without a checkpoint"),
            Setting(f"{OF_SOURCE}properties.isolation.level", "read_committed", READ_COMMITTED),
            Setting(f"{OF_SOURCE}format", "raw", "SQL splits the record's value"),
            Setting(f"{OF_SINK}format", "json", "the lab's result record"),
            Setting(f"{OF_SINK}key.format", "raw", "keyed by IP, as the lab's results are"),
            Setting(f"{OF_SINK}key.fields", "ip", "see key.format"),
        )
        if not exactly_once:
            why = "the control: records are flushed before each checkpoint, and written again after a restart"
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
                "after a restart Flink asks Kafka for the open transactions and aborts them, so that none blocks the "
                "readers until its timeout. The default, INCREMENTING, is for Kafka before 3.0 and leaves one "
                "transactional id per checkpoint in the broker for 7 days",
            ),
            Setting(
                f"{OF_SINK}properties.transaction.timeout.ms",
                str(transaction_timeout_ms),
                "longer than a checkpoint and a restart, or data is lost; at most the broker's "
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
            JVM_ARGS=" ".join(MEMORY if work.long_run else (*QUICK_SPARK, *MEMORY)),  # as for the lab's own job
            # A variable of Java itself, since Flink splits JVM_ARGS at every space.
            JDK_JAVA_OPTIONS=f'"-Djava.io.tmpdir={work.directory / TEMPORARY}"',
            FLINK_LOG_DIR=str(work.directory),
        )

    def order(self, work: Work) -> dict[str, object]:
        """Return the program's ORDER."""
        settings = self.settings(work.exactly_once, work.transaction_timeout_ms, work.commit_seconds)
        checkpoints = work.directory / "checkpoints"
        configuration = {each.name: each.value for each in settings if ": " not in each.name}
        configuration |= {
            "execution.checkpointing.dir": f"file://{checkpoints}",  # unquoted: Flink does not decode %20
            "io.tmp.dirs": str(work.directory / TEMPORARY),
            "pipeline.jars": ";".join(jar.resolve().as_uri() for jar in flink_connector_jars()),
        }
        configuration["parallelism.default"] = str(work.tasks)
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
    """Return the newest complete checkpoint; each start of the job makes a directory of its own for its checkpoints."""
    complete = [file.parent for file in directory.glob("*/chk-*/_metadata")]
    return max(complete, key=lambda each: int(each.name.removeprefix("chk-")), default=None)
