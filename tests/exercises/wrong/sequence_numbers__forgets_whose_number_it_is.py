"""Caught: lost. Scenario: nothing is lost.

Both producers begin to count at 0.
"""


def append(log, record):
    for stored in log.records():
        if stored.sequence == record.sequence:
            return stored.offset
    return log.write(record)
