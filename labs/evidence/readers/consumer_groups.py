"""What Kafka's own tool says of a consumer group: where it stands, where the topic ends, and the lag."""

from __future__ import annotations

import pandas

from labs.equipment.kafka_tool import run_kafka_tool

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
COLUMNS = ("group", "topic", "partition", "current offset", "log end offset", "lag")


class GroupUnknown(LookupError):
    """Kafka knows nothing of such a group."""


def describe_group(bootstrap_servers: str, group: str) -> pandas.DataFrame:
    """Return what `kafka-consumer-groups --describe` shows, a row for each partition. Raises GroupUnknown.

    Its column for the members is left out: who commits offsets without joining has none.
    """
    ran = run_kafka_tool(TOOL, "--bootstrap-server", bootstrap_servers, "--describe", "--group", group, timeout=120)
    rows = [line.split()[: len(COLUMNS)] for line in ran.stdout.splitlines() if line.startswith(f"{group} ")]
    if not rows:
        said = (ran.stderr or ran.stdout).strip().splitlines()[-1:] or ["it said nothing"]
        raise GroupUnknown(f"there is no offset of a group {group!r}: {said[0]}")
    numbers = {name: int for name in COLUMNS[2:]}
    return pandas.DataFrame(rows, columns=list(COLUMNS)).astype(numbers).set_index("group")
