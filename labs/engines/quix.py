"""Quix Streams: a consumer and a producer in plain Python, with its state in RocksDB and in a changelog topic."""

from __future__ import annotations

import json
from pathlib import Path

from labs.engines.engine import (
    COMMIT_SECONDS,
    NAME,
    ONE_TRANSACTION,
    STATIC_MEMBER,
    TRANSACTION_TIMEOUT_MS,
    EngineProcess,
    Setting,
    Work,
    python_command,
)
from labs.engines.environment import QUIX
from labs.pipeline.records import CLOSING_IP, LATENESS_MS, RESULT_FIELDS, SOURCE_PATTERN, WINDOW_MS

PROGRAM = Path(__file__).with_name("quix_program.py")


class QuixEngine:
    """Quix Streams. A restart resumes from the group's offsets, and brings the state up to date from the changelog."""

    name = "quix"
    title = "Quix Streams"
    promise = (
        "Results, changelog and offsets are one transaction of Kafka; the state on disk may be behind and is caught up."
    )
    installed_apart = True
    notes = ""  # the offsets are in Kafka, in the same transaction

    def settings(
        self,
        exactly_once: bool,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        commit_seconds: int = COMMIT_SECONDS,
    ) -> tuple[Setting, ...]:
        """Return the arguments of `Application`, their values as JSON."""
        guarantee = ONE_TRANSACTION if exactly_once else "the control: results at once, offsets once a second"
        shared = (
            _setting("processing_guarantee", "exactly-once" if exactly_once else "at-least-once", guarantee),
            _setting("commit_interval", float(commit_seconds), "seconds; the default is 5"),
            _setting("auto_offset_reset", "earliest", "the log is written before the start; the default is latest"),
            _setting(
                "consumer_extra_config",
                {"group.instance.id": NAME, "isolation.level": "read_committed"},
                f"{STATIC_MEMBER}; read_committed is the default here, and not in the other engines",
            ),
            _setting("use_changelog_topics", True, "the default: without them the state is only on this disk"),
        )
        if not exactly_once:
            return shared
        producer = {"transactional.id": NAME, "transaction.timeout.ms": transaction_timeout_ms}
        why = (
            "by default each start has a new id: no producer would end the transaction of a killed run, which would "
            "hide later results until its timeout. A fixed id is right for a single instance only"
        )
        return (*shared, _setting("producer_extra_config", producer, why))

    def start(self, work: Work) -> EngineProcess:
        """Start the application, or start it again. Raises NotInstalled."""
        return EngineProcess(python_command(QUIX.python, PROGRAM, self.order(work)), work.directory)

    def order(self, work: Work) -> dict[str, object]:
        """Return the program's ORDER."""
        settings = self.settings(work.exactly_once, work.transaction_timeout_ms, work.commit_seconds)
        application = {each.name: json.loads(each.value.replace(NAME, work.name)) for each in settings}
        application |= {
            "broker_address": work.bootstrap_servers,
            "consumer_group": work.name,
            "state_dir": str(work.directory / "state"),
        }
        return {
            "application": application,
            "source_topic": work.source_topic,
            "sink_topic": work.sink_topic,
            "window_ms": WINDOW_MS,
            "lateness_ms": LATENESS_MS,
            "closing_ip": CLOSING_IP,
            "source_pattern": SOURCE_PATTERN,
            "result_fields": RESULT_FIELDS,
        }


def _setting(name: str, value: object, why: str) -> Setting:
    return Setting(name, json.dumps(value), why)
