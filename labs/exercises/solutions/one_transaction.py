"""The position in the topic is part of the result, so it lives where the result lives.

Count and next offset change in one transaction: after any crash the database says how far its own counts reach.
Kafka's committed offsets are not used at all: there is no second opinion about the position that could be older
or newer. A restart asks the database, and seeks there.

The next offset is that of the last record plus one. Nothing has to be recognised, so equal records are no problem.
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
            database.execute("INSERT INTO position VALUES (?)", (message.offset() + 1,))
