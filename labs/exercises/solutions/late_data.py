"""A watermark of 20 to 30 seconds, set before the aggregation, and append mode.

The watermark is the newest event time minus the delay, and a window is final when the watermark passes its end. With
a delay of 20 s the window of a request that is 20 s behind is still open; with more than 30 s a window would not
be final when the newest request is 30 s past its end. Append is the only mode that waits for the final count: update
sends each change, complete sends everything each time, and neither can be taken back from a topic. In complete mode
nothing is ever forgotten either.
"""

from pyspark.sql import functions as F


def query(requests):
    counts = (
        requests.withWatermark("event_time", "20 seconds").groupBy(F.window("event_time", "5 seconds"), "ip").count()
    )
    return counts, "append"
