"""It reads a row by the name of its column."""

import sqlite3

ADD = "INSERT INTO counts VALUES (?, ?, 1) ON CONFLICT (window_start, ip) DO UPDATE SET count = count + 1"


def consume(consumer, database):
    database.row_factory = sqlite3.Row
    row = database.execute("SELECT next_offset FROM position").fetchone()
    if row:
        consumer.seek(row["next_offset"])
    while (message := consumer.poll()) is not None:
        time_ms, ip = message.value().decode().split(",")
        with database:
            database.execute(ADD, (int(time_ms) - int(time_ms) % 5_000, ip))
            database.execute("DELETE FROM position")
            database.execute("INSERT INTO position VALUES (?)", (message.offset() + 1,))
