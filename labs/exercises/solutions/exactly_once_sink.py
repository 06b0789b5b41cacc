"""Rows and marker in one transaction, and the marker is read before anything is written.

1. A new producer first: its epoch fences every older one, so nobody else can move the marker from here on.
2. Only then the marker. If it is this batch, the batch was committed before: it is executed to nowhere, because
   executing it is what moves Spark's state on, and nothing is written.
3. Otherwise rows and marker go into one transaction: a crash leaves both or none.
"""


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
