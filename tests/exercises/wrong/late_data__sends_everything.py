"""Caught: doubled. Scenario: in order.

Complete mode, which needs no watermark, and forgets nothing.
"""

from pyspark.sql import functions as F


def query(requests):
    return requests.groupBy(F.window("event_time", "5 seconds"), "ip").count(), "complete"
