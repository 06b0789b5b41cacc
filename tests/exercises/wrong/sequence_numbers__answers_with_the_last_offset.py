"""Caught: wrong. Scenario: several under way.

It says another record's offset.
"""


def append(log, record):
    own = [stored for stored in log.records() if stored.producer_id == record.producer_id]
    if record.sequence < len(own):
        return own[-1].offset
    if record.sequence > len(own):
        return None
    return log.write(record)
