"""A consumer group as Kafka's own tool shows it: committed offsets, log end offsets, and the lag."""

from __future__ import annotations

import pandas

from labs.equipment.broker import run_kafka_tool

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
COLUMNS = ("group", "topic", "partition", "current offset", "log end offset", "lag")


class GroupUnknown(LookupError):
    """Kafka has no such consumer group."""


def describe_group(bootstrap_servers: str, group: str) -> pandas.DataFrame:
    """Return what `kafka-consumer-groups --describe` shows, a row for each partition. Raises GroupUnknown.

    The columns for members are left out: a consumer that commits offsets without joining has none.
    """
    ran = run_kafka_tool(TOOL, "--bootstrap-server", bootstrap_servers, "--describe", "--group", group, timeout=120)
    rows = [line.split()[: len(COLUMNS)] for line in ran.stdout.splitlines() if line.startswith(f"{group} ")]
    if not rows:
        said = (ran.stderr or ran.stdout).strip().splitlines()[-1:] or ["the tool printed nothing"]
        raise GroupUnknown(f"there is no committed offset of a group {group!r}: {said[0]}")
    numbers = {name: int for name in COLUMNS[2:]}
    return pandas.DataFrame(rows, columns=list(COLUMNS)).astype(numbers).set_index("group")
