"""A record's name is (producer id, sequence number), and the log is the memory: it survives the broker.

A number that the log has from this producer is a repetition: it gets the answer that got lost. The next number is
new. A larger one means that something is missing in front of it: it is refused, and will be sent again.

Kafka does the same, and does not read the whole log each time: it keeps a table of the last five batches of each
producer.
"""


def append(log, record):
    following = 0
    for stored in log.records():
        if stored.producer_id == record.producer_id:
            if stored.sequence == record.sequence:
                return stored.offset
            following = stored.sequence + 1
    if record.sequence != following:
        return None
    return log.write(record)
