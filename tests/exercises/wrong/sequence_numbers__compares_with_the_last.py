"""Caught: doubled. Scenario: several under way.

It recognises a producer's last record only.
"""


def append(log, record):
    own = [stored for stored in log.records() if stored.producer_id == record.producer_id]
    if own and own[-1].sequence == record.sequence:
        return own[-1].offset
    return log.write(record)
