"""Caught: lost. Scenario: 20 seconds late.

Five seconds were right for another log.
"""

from pyspark.sql import functions as F


def query(requests):
    on_time = requests.withWatermark("event_time", "5 seconds")
    return on_time.groupBy(F.window("event_time", "5 seconds"), "ip").count(), "append"
