"""Kafka Streams: Kafka's own library for Java programs, with its state in RocksDB and in a changelog topic."""

from __future__ import annotations

from labs.engines.engine import (
    COMMIT_SECONDS,
    NAME,
    ONE_TRANSACTION,
    READ_COMMITTED,
    STATIC_MEMBER,
    TEMPORARY,
    TRANSACTION_TIMEOUT_MS,
    EngineProcess,
    Setting,
    Work,
)
from labs.engines.environment import STREAMS
from labs.equipment.java import find_java
from labs.equipment.node import QUICK_SPARK
from labs.pipeline.records import CLOSING_IP, LATENESS_MS, SOURCE_PATTERN, WINDOW_MS

MEMORY = ("-Xmx1g",)  # the same as for Flink
PROGRAM = "IpCount"
CENTURY_MS = 100 * 365 * 24 * 3600 * 1000


class StreamsEngine:
    """Kafka Streams. A restart resumes from the group's offsets, and brings the state up to date from the changelog."""

    name = "streams"
    title = "Kafka Streams"
    promise = (
        "Results, changelog and offsets are one transaction of Kafka; a restart rebuilds the state from the changelog."
    )
    installed_apart = True
    notes = ""  # the offsets are in Kafka, in the same transaction

    def settings(
        self,
        exactly_once: bool,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        commit_seconds: int = COMMIT_SECONDS,
    ) -> tuple[Setting, ...]:
        """Return the application's configuration."""
        guarantee = (
            ONE_TRANSACTION if exactly_once else "the control, and the default: results at once, offsets once a second"
        )
        shared = (
            Setting("processing.guarantee", "exactly_once_v2" if exactly_once else "at_least_once", guarantee),
            Setting(
                "commit.interval.ms",
                str(commit_seconds * 1000),
                "as often as the others; the default is 100 for exactly once, and 30,000 for at least once",
            ),
            Setting(
                "main.consumer.group.instance.id",
                NAME,
                STATIC_MEMBER,
            ),
            Setting("main.consumer.isolation.level", "read_committed", f"{READ_COMMITTED}, unless exactly once is set"),
            Setting(
                "windowstore.changelog.additional.retention.ms",
                str(CENTURY_MS),
                "the default is a day of event time: with an older log Kafka deletes the state's changelog, and a "
                "restart loses the counts so far",
            ),
        )
        if not exactly_once:
            return shared
        why = (
            "the default is 10 s for exactly once. It must be longer than a slow commit interval, or the transaction "
            "is aborted and its records are counted again"
        )
        return (*shared, Setting("producer.transaction.timeout.ms", str(transaction_timeout_ms), why))

    def start(self, work: Work) -> EngineProcess:
        """Start the application, or start it again. Raises NotInstalled, JarRefused."""
        class_path = ":".join(map(str, STREAMS.class_path))
        java = [find_java().executable, *MEMORY, *(() if work.long_run else QUICK_SPARK)]
        temporary = f"-Djava.io.tmpdir={work.directory / TEMPORARY}"  # RocksDB's library is unpacked there
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
        arguments = [f"{name}={value}" for name, value in self.order(work).items()]
        return EngineProcess([*java, temporary, quiet, "-cp", class_path, PROGRAM, *arguments], work.directory)

    def order(self, work: Work) -> dict[str, str]:
        """Return the program's ORDER: names with `job.` describe the job, the others are the configuration."""
        settings = self.settings(work.exactly_once, work.transaction_timeout_ms, work.commit_seconds)
        return {
            **{each.name: each.value.replace(NAME, work.name) for each in settings},
            "num.stream.threads": str(work.tasks),
            "application.id": work.name,
            "bootstrap.servers": work.bootstrap_servers,
            "state.dir": str(work.directory / "state"),
            "job.source.topic": work.source_topic,
            "job.sink.topic": work.sink_topic,
            "job.source.pattern": SOURCE_PATTERN,
            "job.window.ms": str(WINDOW_MS),
            "job.lateness.ms": str(LATENESS_MS),
            "job.closing.ip": CLOSING_IP,
        }
