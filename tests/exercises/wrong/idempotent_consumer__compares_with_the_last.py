"""Caught: doubled. Scenario: no crash.

Only a repetition that follows at once is recognised.
"""

import json


def consume(consumer, database):
    last = None
    while (message := consumer.poll()) is not None:
        if message.value() != last:
            with database:
                result = json.loads(message.value())
                database.execute("INSERT INTO results VALUES (:window_start, :ip, :count)", result)
        last = message.value()
        consumer.commit()
