"""Caught: doubled. Scenario: killed before database commit.

What was seen is remembered by the process, and forgotten with it.
"""

import json


def consume(consumer, database):
    seen = set()
    while (message := consumer.poll()) is not None:
        result = json.loads(message.value())
        key = result["window_start"], result["ip"]
        if key not in seen:
            seen.add(key)
            with database:
                database.execute("INSERT INTO results VALUES (:window_start, :ip, :count)", result)
        consumer.commit()
