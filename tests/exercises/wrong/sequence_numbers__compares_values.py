"""Caught: lost. Scenario: nothing is lost.

It takes two equal requests for one.
"""


def append(log, record):
    for stored in log.records():
        if stored.value == record.value:
            return stored.offset
    return log.write(record)
