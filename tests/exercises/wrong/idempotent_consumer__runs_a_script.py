"""Caught: lost. Scenario: killed between transactions.

A script begins no transaction: the name may be noted, and the result not written.
"""

import json

KNOWN = "SELECT 1 FROM seen WHERE window_start = ? AND ip = ?"


def consume(consumer, database):
    database.execute("CREATE TABLE IF NOT EXISTS seen (window_start, ip)")
    while (message := consumer.poll()) is not None:
        result = json.loads(message.value())
        start, ip = result["window_start"], result["ip"]
        if not database.execute(KNOWN, (start, ip)).fetchone():
            database.executescript(f"""
                INSERT INTO seen VALUES ({start}, '{ip}');
                INSERT INTO results VALUES ({start}, '{ip}', {result["count"]});
            """)
        consumer.commit()
