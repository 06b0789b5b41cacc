"""Kafka's own command-line tools, run with the lab's Java and the broker's jars."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from labs.equipment.child_environment import for_program
from labs.equipment.jars import broker_jars
from labs.equipment.java import find_java
from labs.equipment.node import LOG4J, QUICK_START


def run_kafka_tool(
    main_class: str, *arguments: str, cwd: Path | None = None, timeout: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's tools by its main class, and return its exit code and what it printed.

    Raises subprocess.TimeoutExpired after `timeout` seconds.
    """
    command = [
        find_java().executable,
        *("-XX:+UseSerialGC", *QUICK_START, f"-Dlog4j2.configurationFile={LOG4J.as_uri()}"),
        *("-cp", os.pathsep.join(map(str, broker_jars())), main_class, *arguments),
    ]
    ran = subprocess.run(command, cwd=cwd, env=for_program(), capture_output=True, timeout=timeout)
    # Not as a text file: a carriage return in a record's value would become the end of a line.
    said, complained = ran.stdout.decode(errors="replace"), ran.stderr.decode(errors="replace")
    return subprocess.CompletedProcess(command, ran.returncode, said, complained)
