"""Before a killed broker starts again, a controller alone notes that it is dead.

Kafka 4.3.1 loses commits otherwise (KAFKA-20734; docs/sink.md has more of it). The restarted broker finds itself
leader, by its old registration, and goes on with transactions whose commit was decided and not yet marked in the
partitions; then that registration is fenced, the partitions have no leader for a moment, and the transaction
coordinator takes them for deleted, skips them and calls the transaction complete. Its records stay undecided.

Where it stops: one node. Of several, the others notice that one is dead; all replicas that a partition has in sync,
killed at once, are not covered.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path

from labs.equipment.child_process import ChildProcess
from labs.equipment.eventually import eventually

BROKER_ONLY = {"process.roles", "listeners", "advertised.listeners", "inter.broker.listener.name"}


def controller_properties(properties: Mapping[str, str], quorum_port: int) -> dict[str, str]:
    """Return the node's properties for a process that is its controller alone, and quick to fence."""
    return {
        **{key: value for key, value in properties.items() if key not in BROKER_ONLY},
        "process.roles": "controller",
        "listeners": f"CONTROLLER://127.0.0.1:{quorum_port}",
        "broker.session.timeout.ms": "200",
        "broker.heartbeat.interval.ms": "100",
    }


def sees_it_fenced(controller: ChildProcess, metadata: Path) -> bool:
    """Wait until the controller has fenced the broker, or finds that it was. False: it ended before that.

    `metadata` is the directory of Kafka's metadata log.
    """

    def ended() -> bool:  # of a race in Kafka 4.3.1's controller, at its start (MetadataLoader#installPublishers)
        return controller.pid is None

    def log_since_active() -> str:
        _, active, since = controller.output().rpartition("Becoming the active controller")
        return active and active + since

    def size() -> int:
        return sum(file.stat().st_size for file in metadata.glob("*.log"))

    eventually(lambda: ended() or log_since_active(), timeout=60)
    with contextlib.suppress(TimeoutError):  # it may have died fenced, and then there is nothing to wait for
        eventually(lambda: ended() or "fenced=1," in log_since_active(), timeout=5)
    # The record of it is written with some delay, and a shutdown would drop it.
    before = size()
    with contextlib.suppress(TimeoutError):
        eventually(lambda: ended() or size() > before, timeout=2)
    time.sleep(0.3)
    return not ended()
