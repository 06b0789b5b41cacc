"""The named places that an epoch passes on its way through the real-time sink, in the process of its task."""

from __future__ import annotations

from exactly_once_kafka.points import AFTER_COMMIT, BEFORE_CHECKPOINT, BEFORE_COMMIT, MID_TRANSACTION

BEFORE_OPEN = "before_open"  # the task has begun, and knows nothing yet
AFTER_BEGIN = "after_begin"  # the epoch is granted, the marker read, the transaction begun; nothing is written

REAL_TIME_POINTS = (BEFORE_OPEN, AFTER_BEGIN, MID_TRANSACTION, BEFORE_COMMIT, AFTER_COMMIT, BEFORE_CHECKPOINT)
