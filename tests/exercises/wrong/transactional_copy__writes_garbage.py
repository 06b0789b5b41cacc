"""Caught: wrong. Scenario: no crash.

The line is copied as it is, and not as JSON.
"""


def copy(consumer, producer, topic):
    producer.init_transactions()
    while (message := consumer.poll()) is not None:
        producer.begin_transaction()
        producer.produce(topic, message.value())
        position = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata())
        producer.commit_transaction()
