"""Why a streaming query ended, in one line: what went wrong first, and not all that Spark made of it."""

from __future__ import annotations

import re

OWN_ERRORS = ("InjectedCrash: ", "SinkRefused: ", "BatchFailed: ")

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
    text = str(error)
    for own in OWN_ERRORS:
        if own in text:
            return text.split(own)[-1].splitlines()[0]
    for pattern, meaning in KNOWN.items():
        if found := re.search(pattern, text):
            return meaning.format(found[0])
    causes = re.findall(r"^Caused by: (.+)$", text, re.MULTILINE)
    if causes:
        return causes[-1]
    java = re.search(r"An error occurred while calling .+\n: (.+)", text)
    if java:
        return java[1]
    return text.splitlines()[0] if text else type(error).__name__
