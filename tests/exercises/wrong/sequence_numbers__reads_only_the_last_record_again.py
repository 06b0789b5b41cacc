"""Caught: wrong. Scenario: the broker is killed.

It remembers the last five of each producer, but after a restart only the last one.
"""

table = None


def append(log, record):
    global table
    if table is None:
        table = {each.producer_id: [each] for each in log.records()}  # the last of each producer
    known = table.setdefault(record.producer_id, [])
    for each in known[-5:]:
        if each.sequence == record.sequence:
            return each.offset
    if record.sequence != (known[-1].sequence + 1 if known else 0):
        return None
    offset = log.write(record)
    known.append(log.records()[offset])
    return offset
