"""Caught: crashed. Scenario: crash after commit.

A batch that is done is left out, and so is Spark's state for it.
"""


def publish(rows, batch_id, kafka):
    producer = kafka.new_producer()
    if kafka.last_batch() == batch_id:
        return
    producer.begin_transaction()
    for row in rows.collect():
        producer.produce(kafka.topic, row.value)
    kafka.mark(batch_id, producer)
    producer.commit_transaction()
