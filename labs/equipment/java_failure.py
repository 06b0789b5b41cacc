"""Why a JVM failed, in one line, from the pages that it printed; and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Collection

CAUSED_BY = re.compile(r"^\s*Caused by: (.+)", re.MULTILINE)
EXCEPTION = r"(?:[a-z]\w*\.)+[A-Z][\w$]*(?:Exception|Error)\b.*"
RAISED = re.compile(rf"^(?:: |Exception in thread \S+ |Error: )?({EXCEPTION})", re.MULTILINE)
# What a JVM and Spark's scripts say, whatever the cause is.
NO_CAUSE = re.compile(
    r"\s*$|\s+at |\s+\.\.\. |WARNING: |NOTE: |Picked up |Using Spark's |Setting default log level|To adjust logging|"
    r"Error: Could not create the Java Virtual Machine|Error: A fatal exception has occurred|"
    r"Error occurred during initialization of |\S+ (WARN|INFO) "
)
CURES = (
    ("No space left on device|Disk quota", "Free space, or let TMPDIR name a directory on another disk"),
    (
        "OutOfMemoryError|llocate |native thread|insufficient memory|reserve",
        "Free memory, 2 GB are needed; or raise its limit (`ulimit -v`, or that of the container)",
    ),
    ("BindException|assign requested address", "Allow Java to listen on 127.0.0.1, in the firewall or VPN"),
    ("UnsupportedClassVersionError", "Let JAVA_HOME name a Java of version 17 or newer, or unset it"),
)
REPEAT = "Close other programs and try again; if it fails again, report these lines"


def innermost_cause(printed: str) -> str | None:
    """Return what a stack trace, or a JVM that did not come up, gives as the cause of all; None if nothing does."""
    for pattern in (CAUSED_BY, RAISED):
        if found := pattern.findall(printed):
            return found[-1].strip()
    told = [line.strip() for line in printed.splitlines() if not NO_CAUSE.match(line)]
    return told[-1] if told else None


def cure(cause: str, kept: Collection[str] = ()) -> str:
    """Return what to do about a cause; `kept` are variables that were left to Java, for the lab knew no better."""
    if kept:
        return f"Unset those of these variables that are not meant for this Spark: {', '.join(sorted(kept))}"
    return next((what_to_do for pattern, what_to_do in CURES if re.search(pattern, cause)), REPEAT)
