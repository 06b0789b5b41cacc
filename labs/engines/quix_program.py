"""The IP count as a Quix Streams application, run by its own environment's Python: `python -I quix_program.py ORDER`.

ORDER is one JSON object, made by `QuixEngine`. This file imports nothing of the lab, whose packages are in another
environment.
"""

from __future__ import annotations

import json
import re
import sys


def main(order: dict) -> None:
    """Run the application until a signal ends it."""
    from quixstreams import Application
    from quixstreams.models.serializers import BytesDeserializer, BytesSerializer

    is_access = re.compile(order["source_pattern"], re.ASCII).fullmatch

    def access(value: bytes) -> tuple[int, str] | None:
        text = value.decode(errors="replace")
        if not is_access(text):
            return None
        time_ms, ip = text.split(",")
        return int(time_ms), ip

    def event_time(value: bytes, headers: object, timestamp: int, kind: object) -> int:
        found = access(value)
        return found[0] if found else 0

    def result(window: dict, key: bytes | None, *_: object) -> bytes:
        row = dict(zip(order["result_fields"], (window["start"], (key or b"").decode(), window["value"]), strict=True))
        return json.dumps(row, separators=(",", ":"), ensure_ascii=False).encode()

    application = Application(**order["application"])
    source = application.topic(
        order["source_topic"],
        key_deserializer=BytesDeserializer(),
        value_deserializer=BytesDeserializer(),
        timestamp_extractor=event_time,
    )
    sink = application.topic(order["sink_topic"], key_serializer=BytesSerializer(), value_serializer=BytesSerializer())
    rows = application.dataframe(source)
    rows = rows.filter(lambda value: access(value) is not None)
    windows = rows.tumbling_window(order["window_ms"], order["lateness_ms"], name="requests").count()
    # The event time of the partition closes windows, not that of each IP: so one closing record closes them all.
    counts = windows.final(closing_strategy="partition")
    counts = counts.filter(lambda window, key, *_: key != order["closing_ip"].encode(), metadata=True)
    counts.apply(result, metadata=True).to_topic(sink)
    application.run()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
