"""The IP count as a Flink job, run by the Python of Flink's own environment: `python -I flink_program.py ORDER`.

ORDER is one JSON object, made by `FlinkEngine`. The job is that of Flink's own lesson, in SQL: tumbling windows of
event time, a watermark that waits for the lateness, one result per window and IP. It runs on a cluster within one JVM.
This file imports nothing of the lab, whose packages are in another environment.
"""

from __future__ import annotations

import json
import sys

SOURCE = """
CREATE TABLE accesses (
    line STRING,
    time_ms AS TRY_CAST(SPLIT_INDEX(line, ',', 0) AS BIGINT),
    ip AS SPLIT_INDEX(line, ',', 1),
    event_time AS TO_TIMESTAMP_LTZ(TRY_CAST(SPLIT_INDEX(line, ',', 0) AS BIGINT), 3),
    WATERMARK FOR event_time AS event_time - INTERVAL '{lateness}' SECOND
) WITH ({options})
"""

SINK = "CREATE TABLE results (window_start BIGINT, ip STRING, `count` BIGINT) WITH ({options})"

# The condition comes after the watermark: a closing record is not counted, but its time closes windows.
COUNT = """
INSERT INTO results
SELECT TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', window_start) * CAST(1000 AS BIGINT), ip, COUNT(*)
FROM TABLE(TUMBLE(TABLE accesses, DESCRIPTOR(event_time), INTERVAL '{window}' SECOND))
WHERE ip <> '{closing_ip}'
GROUP BY window_start, window_end, ip
"""


def main(order: dict) -> None:
    """Start the job, and wait until a signal ends it."""
    from pyflink.common import Configuration
    from pyflink.table import EnvironmentSettings, TableEnvironment

    configuration = Configuration()
    for name, value in order["configuration"].items():
        configuration.set_string(name, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    tables = TableEnvironment.create(settings)
    tables.execute_sql(SOURCE.format(lateness=order["lateness_ms"] // 1000, options=options(order["source"])))
    tables.execute_sql(SINK.format(options=options(order["sink"])))
    counting = COUNT.format(window=order["window_ms"] // 1000, closing_ip=order["closing_ip"])
    tables.execute_sql(counting).wait()


def options(values: dict[str, str]) -> str:
    """Write a table's options as SQL."""
    return ", ".join(f"{quoted(name)} = {quoted(value)}" for name, value in values.items())


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
