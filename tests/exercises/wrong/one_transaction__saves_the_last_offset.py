"""Caught: doubled. Scenario: no crash.

The position is that of the last record, and not of the next.
"""


def consume(consumer, database):
    row = database.execute("SELECT next_offset FROM position").fetchone()
    if row:
        consumer.seek(row[0])
    while (message := consumer.poll()) is not None:
        time_ms, ip = message.value().decode().split(",")
        window_start = int(time_ms) - int(time_ms) % 5_000
        with database:
            database.execute(
                "INSERT INTO counts VALUES (?, ?, 1) ON CONFLICT (window_start, ip) DO UPDATE SET count = count + 1",
                (window_start, ip),
            )
            database.execute("DELETE FROM position")
            database.execute("INSERT INTO position VALUES (?)", (message.offset(),))
