"""Caught: wrong. Scenario: an answer is lost.

The producer never hears that its record is stored.
"""


def append(log, record):
    own = [stored for stored in log.records() if stored.producer_id == record.producer_id]
    if record.sequence != len(own):
        return None
    return log.write(record)
