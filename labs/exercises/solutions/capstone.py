"""Lesson 07's sink, and one thing more: it knows when its turn is over.

1. A new producer first: its epoch fences every older one, so nobody else can move the marker from here on.
2. The marker of a LATER batch means that another driver has gone on while this one slept. It must not write its old
   batch, and must not call it done either: it raises. A restart finds the checkpoint where the other one left it.
3. The marker of this batch means that it is there: it is executed to nowhere.
4. Otherwise rows and marker go into one transaction: a crash leaves both or none.
"""


def publish(rows, batch_id, kafka):
    producer = kafka.new_producer()
    last = kafka.last_batch()
    if last > batch_id:
        raise RuntimeError(f"this is batch {batch_id}, and batch {last} is published: another driver has gone on")
    if last == batch_id:
        rows.write.format("noop").mode("overwrite").save()
        return
    producer.begin_transaction()
    for row in rows.collect():
        producer.produce(kafka.topic, row.value)
    kafka.mark(batch_id, producer)
    producer.commit_transaction()
