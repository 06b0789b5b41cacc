"""Caught: crashed. Scenario: no fault."""


def publish(rows, batch_id, kafka):
    producer = kafka.new_producer()
    producer.begin_transaction()
    for row in rows.collect():
        producer.produce(kafka.topic, row.value)
    producer.commit_transaction()
    kafka.mark(batch_id)
