"""Caught: lost. Scenario: killed before database commit.

The note "seen" is committed before the result, so a crash in between leaves the note alone.
"""

import json


def consume(consumer, database):
    database.execute("CREATE TABLE IF NOT EXISTS seen (window_start, ip, PRIMARY KEY (window_start, ip))")
    while (message := consumer.poll()) is not None:
        result = json.loads(message.value())
        name = result["window_start"], result["ip"]
        if not database.execute("SELECT 1 FROM seen WHERE window_start = ? AND ip = ?", name).fetchone():
            with database:
                database.execute("INSERT INTO seen VALUES (?, ?)", name)
            with database:
                database.execute("INSERT INTO results VALUES (:window_start, :ip, :count)", result)
        consumer.commit()
