"""Caught: doubled. Scenario: in order.

Update mode sends each change of a count.
"""

from pyspark.sql import functions as F


def query(requests):
    on_time = requests.withWatermark("event_time", "20 seconds")
    return on_time.groupBy(F.window("event_time", "5 seconds"), "ip").count(), "update"
