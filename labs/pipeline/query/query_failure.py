"""Says in one line why a streaming query ended: the first cause, without Spark's messages around it."""

from __future__ import annotations

import re

# The end of a Python traceback: what a foreachBatch function raised. Exceptions of py4j and pyspark only pass on what
# Spark reported, so for them the whole text is searched.
RAISED = re.compile(r"^(?:([\w.]+)\.)?(\w+)(?:: (.*))?$", re.MULTILINE)
MESSENGERS = ("py4j", "pyspark")

# What Spark, Hadoop or Java say -> what it means for this pipeline, and what to do.
KNOWN = {
    r"Some data may have been lost because they are not available in Kafka any more": (
        "records that the query has not read yet are no longer in the source topic: they expired while it was down. "
        "Nothing was skipped. Either bring them back, or accept that they are lost: start anew with a new checkpoint "
        "and a new sink name, or give the source failOnDataLoss=false"
    ),
    r"No space left on device": (
        "no space left on device: the disk of the checkpoint, or of Spark's temporary files, is full. Free some and "
        "restart the query: it repeats the batch that it could not note"
    ),
    r"mkdir of (\S+) failed|\((Permission denied|Read-only file system)\)|Mkdirs failed to create (\S+)": (
        "the checkpoint directory cannot be written ({}). Check who owns it and how its disk is mounted, and restart "
        "the query: it repeats the batch that it could not note"
    ),
}


def why(error: BaseException | None) -> str:
    """Say in one line why a query, or a job that ran one, failed."""
    error = _behind(error)
    text = str(error)
    module, name, message = _raised(text)
    if name and not module.startswith(MESSENGERS):
        return message if module and message else ": ".join(filter(None, (name, message)))
    for pattern, meaning in KNOWN.items():
        if found := re.search(pattern, text):
            return meaning.format(found[0])
    causes = re.findall(r"^Caused by: (.+)$", text, re.MULTILINE)
    if causes:
        return causes[-1]
    java = re.search(r"An error occurred while calling .+\n: (.+)", text)
    if java:
        return java[1]
    if module.startswith("pyspark"):
        return message
    return text.splitlines()[0] if text else type(error).__name__


def _behind(error: BaseException | None) -> BaseException | None:
    """Return the error that Spark's awaitResult has wrapped; the given error if there is none."""
    cause = error
    while cause is not None and "Exception thrown in awaitResult" in str(cause).partition("\n")[0]:
        cause = getattr(cause, "_cause", None)
    return error if cause is None else cause


def _raised(text: str) -> tuple[str, str, str]:
    """Return module (none for a builtin), name and first line of the exception that ends the last traceback, if any."""
    _, found, last = text.rpartition("Traceback (most recent call last):\n")
    end = RAISED.search(last) if found else None
    return (end[1] or "", end[2], end[3] or "") if end else ("", "", "")
