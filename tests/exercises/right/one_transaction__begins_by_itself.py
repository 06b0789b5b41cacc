"""It begins and commits its transactions in SQL, with a cursor."""

ADD = "INSERT INTO counts VALUES (?, ?, 1) ON CONFLICT (window_start, ip) DO UPDATE SET count = count + 1"


def consume(consumer, database):
    database.isolation_level = None
    cursor = database.cursor()
    row = cursor.execute("SELECT next_offset FROM position").fetchone()
    if row:
        consumer.seek(row[0])
    while (message := consumer.poll()) is not None:
        time_ms, ip = message.value().decode().split(",")
        cursor.execute("BEGIN")
        cursor.execute(ADD, (int(time_ms) - int(time_ms) % 5_000, ip))
        cursor.execute("DELETE FROM position")
        cursor.execute("INSERT INTO position VALUES (?)", (message.offset() + 1,))
        cursor.execute("COMMIT")
