"""Caught: doubled. Scenario: a driver wakes up."""


def publish(rows, batch_id, kafka):
    producer = kafka.new_producer()
    if kafka.last_batch() == batch_id:
        rows.write.format("noop").mode("overwrite").save()
        return
    producer.begin_transaction()
    for row in rows.collect():
        producer.produce(kafka.topic, row.value)
    kafka.mark(batch_id, producer)
    producer.commit_transaction()
