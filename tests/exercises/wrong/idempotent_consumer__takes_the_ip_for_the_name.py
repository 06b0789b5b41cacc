"""Caught: lost. Scenario: no crash.

Two windows of one IP are two results.
"""

import json


def consume(consumer, database):
    database.execute("CREATE UNIQUE INDEX IF NOT EXISTS one_of_each ON results (ip)")
    while (message := consumer.poll()) is not None:
        with database:
            result = json.loads(message.value())
            database.execute("INSERT OR IGNORE INTO results VALUES (:window_start, :ip, :count)", result)
        consumer.commit()
