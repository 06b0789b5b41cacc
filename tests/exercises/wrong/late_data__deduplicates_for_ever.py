"""Caught: remembers. Scenario: state.

The deduplication knows no watermark, and keeps every request.
"""

from pyspark.sql import functions as F


def query(requests):
    once = requests.dropDuplicates(["ip", "event_time"]).withWatermark("event_time", "20 seconds")
    return once.groupBy(F.window("event_time", "5 seconds"), "ip").count(), "append"
