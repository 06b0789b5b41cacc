"""Caught: doubled. Scenario: killed between transactions.

A script begins no transaction: each of its statements is one.
"""


def consume(consumer, database):
    row = database.execute("SELECT next_offset FROM position").fetchone()
    if row:
        consumer.seek(row[0])
    while (message := consumer.poll()) is not None:
        time_ms, ip = message.value().decode().split(",")
        start = int(time_ms) - int(time_ms) % 5_000
        database.executescript(f"""
            INSERT INTO counts VALUES ({start}, '{ip}', 1)
                ON CONFLICT (window_start, ip) DO UPDATE SET count = count + 1;
            DELETE FROM position;
            INSERT INTO position VALUES ({message.offset() + 1});
        """)
