"""Caught: lost. Scenario: no crash.

Two equal lines are two requests.
"""


def consume(consumer, database):
    database.execute("CREATE TABLE IF NOT EXISTS seen (line PRIMARY KEY)")
    upsert = "INSERT INTO counts VALUES (?, ?, 1) ON CONFLICT (window_start, ip) DO UPDATE SET count = count + 1"
    while (message := consumer.poll()) is not None:
        line = message.value().decode()
        time_ms, ip = line.split(",")
        if not database.execute("SELECT 1 FROM seen WHERE line = ?", (line,)).fetchone():
            with database:
                database.execute("INSERT INTO seen VALUES (?)", (line,))
                database.execute(upsert, (int(time_ms) - int(time_ms) % 5_000, ip))
        consumer.commit()
