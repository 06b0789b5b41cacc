"""The terms of a judgement: anomalies, verdicts, and what can become of a single result."""

from __future__ import annotations

from enum import Enum, StrEnum


class Verdict(StrEnum):
    """Unknown is not a kind of success: it means that valid could not be told from invalid."""

    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"


class Fate(StrEnum):
    """What became of a result. Each record beyond the first of its window and IP is duplicated."""

    DELIVERED = "delivered"
    DUPLICATED = "duplicated"
    LOST = "lost"
    WRONG = "wrong"


class Anomaly(Enum):
    """A way in which a history differs from the expected one; the value is its meaning in one sentence."""

    LOST = "An expected result is not there."
    DUPLICATE = "A result is there again, with an equal count."
    CONFLICT = "A result is there more than once, with unequal counts."
    UNDERCOUNT = "A count is smaller than expected."
    OVERCOUNT = "A count is larger than expected."
    PHANTOM = "A result is there for a window and IP that had no requests."
    ABORTED_READ = "A record of an aborted transaction was read."
    TORN_BATCH = "Only some of the rows that an attempt at a batch wrote are visible."
    NONMONOTONIC = "A partition holds rows of a batch after rows of a later batch."
    READERS_DISAGREE = "A record was seen by only one of two readers."
    HANGING_TRANSACTION = "What was written last to a partition cannot be read: an open transaction hides it."
    SOURCE_LOST = "A record that was acknowledged is not in the source topic."
    SOURCE_DUPLICATE = "A record is in the source topic more often than it was sent."
    LATE_DROPPED = "A record came after its window was final, and was dropped as it should be."
    INDETERMINATE = "A send was never acknowledged: the record may or may not be stored, and either is right."

    @property
    def meaning(self) -> str:
        return self.value

    @property
    def is_error(self) -> bool:
        """Tell whether this anomaly alone makes a history invalid."""
        return self not in (Anomaly.LATE_DROPPED, Anomaly.INDETERMINATE)
