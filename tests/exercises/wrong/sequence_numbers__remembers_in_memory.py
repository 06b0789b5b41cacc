"""Caught: doubled. Scenario: the broker is killed.

Its memory does not survive it.
"""

offsets: dict = {}


def append(log, record):
    name = record.producer_id, record.sequence
    if name not in offsets:
        before = [sequence for producer_id, sequence in offsets if producer_id == record.producer_id]
        if offsets and record.sequence > max(before, default=-1) + 1 and before:
            return None
        offsets[name] = log.write(record)
    return offsets[name]
