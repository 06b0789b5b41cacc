"""Caught: doubled. Scenario: killed after commit."""


def publish(rows, batch_id, kafka):
    producer = kafka.new_producer()
    producer.begin_transaction()
    for row in rows.collect():
        producer.produce(kafka.topic, row.value)
    producer.commit_transaction()
