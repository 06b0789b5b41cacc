"""Caught: lost. Scenario: killed before database commit.

The offset is committed before the work.
"""

import json


def consume(consumer, database):
    database.execute("CREATE UNIQUE INDEX IF NOT EXISTS one_of_each ON results (window_start, ip)")
    while (message := consumer.poll()) is not None:
        consumer.commit()
        result = json.loads(message.value())
        with database:
            database.execute("INSERT OR IGNORE INTO results VALUES (:window_start, :ip, :count)", result)
