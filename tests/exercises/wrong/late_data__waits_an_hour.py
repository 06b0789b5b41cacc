"""Caught: lost. Scenario: in order.

Nothing is ever late, and nothing is out in time.
"""

from pyspark.sql import functions as F


def query(requests):
    patient = requests.withWatermark("event_time", "1 hour")
    return patient.groupBy(F.window("event_time", "5 seconds"), "ip").count(), "append"
