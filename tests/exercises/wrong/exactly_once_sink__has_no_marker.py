"""Caught: doubled. Scenario: crash after commit.

Transactions alone.
"""


def publish(rows, batch_id, kafka):
    producer = kafka.new_producer()
    producer.begin_transaction()
    for row in rows.collect():
        producer.produce(kafka.topic, row.value)
    producer.commit_transaction()
