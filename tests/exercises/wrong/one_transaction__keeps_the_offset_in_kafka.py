"""Caught: doubled. Scenario: killed after database commit.

The count is in the database and the offset in Kafka: two commits.
"""


def consume(consumer, database):
    while (message := consumer.poll()) is not None:
        time_ms, ip = message.value().decode().split(",")
        window_start = int(time_ms) - int(time_ms) % 5_000
        with database:
            database.execute(
                "INSERT INTO counts VALUES (?, ?, 1) ON CONFLICT (window_start, ip) DO UPDATE SET count = count + 1",
                (window_start, ip),
            )
        consumer.commit()
