"""Exercise 7: choose watermark and output mode so that stated late events count, and the state does not grow.

    def query(requests): ...
        return counts, output_mode

`requests` is a streaming DataFrame with event_time and ip. Return the requests per 5-second window and IP, with the
columns window, ip, count, and the output mode for them. The results go to a topic, which cannot take anything back:

1. A request that is up to 20 s behind the newest one before it counts.
2. Each window and IP comes out once, with its final count.
3. It has come out by the time that there is a request 30 s later than the window's end.
4. Spark forgets a window that has come out: the state does not hold it, and later requests do not change it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from labs.evidence.auditor.expected import count_by_window
from labs.exercises.checker.rounds import Access, Round, spark_scenarios
from labs.exercises.checker.scenario import Exercise
from labs.exercises.checker.student_process import Limits, Run
from labs.pipeline.log.generate import START_MS
from labs.pipeline.records import WINDOW_MS, window_start

IPS = ("192.0.2.1", "192.0.2.2", "198.51.100.7")
BATCH = 10  # records; no window begins where a batch does, so that counts grow over several batches
OUT_AFTER_MS = 30_000
WINDOWS = 8
LAST_MOMENT_MS = 200
OPEN_ROWS = 12  # the state may hold the windows that are not final: at most those of the last 30 s, and 3 IPs


def in_order() -> list[Access]:
    """Return a request of every IP each second or so, over eight windows."""
    return [(START_MS + 1_300 * n + 100 * k, ip) for n in range(WINDOWS * 4) for k, ip in enumerate(IPS)]


def late_by(late_ms: int) -> list[Access]:
    """Return the log with two requests exactly `late_ms` behind the newest, in the last moment of their window.

    The newest one jumps ahead. The late one comes more than two batches later, because a batch drops the records that
    were late for the batch before it; the requests in between are on time.
    """
    accesses: list[Access] = []
    for position, (time_ms, ip) in enumerate(in_order()):
        accesses.append((time_ms, ip))
        if position in (36, 66):
            newest = window_start(time_ms + 2 * WINDOW_MS) + WINDOW_MS - LAST_MOMENT_MS
            accesses.append((newest, IPS[0]))
        if position in (62, 92):
            accesses.append((newest - late_ms, IPS[1]))
    return accesses


def ended(accesses: Iterable[Access], left_out: Iterable[Access] = (), **options: Any) -> Round:
    """Return a round whose last request comes so long after all others that every window is out."""
    accesses, left_out = list(accesses), set(left_out)
    last = max(time_ms for time_ms, _ in accesses)
    expected = count_by_window(access for access in accesses if access not in left_out)
    closing = window_start(last) + WINDOW_MS + OUT_AFTER_MS
    return Round([*accesses, (closing, "192.0.2.250")], expected, BATCH, **options)


def much_too_late() -> Round:
    """Return a log with requests an hour and ten minutes behind, some for windows that came out."""
    late = [(START_MS - 3_600_000, IPS[0]), (START_MS - 600_000, IPS[1]), (START_MS + 33, IPS[2])]
    a_minute_later = [(time_ms + 60_000, ip) for time_ms, ip in in_order()[:45]]
    return ended([*in_order(), *a_minute_later[:35], *late, *a_minute_later[35:]], late)


def forgets(run: Run) -> str:
    """Complain if the state holds more than the windows that are not out yet."""
    rows = [event["rows"] for event in run.events if event["kind"] == "state"][-1:]
    if not rows:
        return "the query ran no batch, so its state is unknown"
    if rows[0] > OPEN_ROWS:
        return f"the state holds {rows[0]} rows; {OPEN_ROWS} are enough for the windows that are not out yet"
    return ""


EXERCISE = Exercise(
    name="late_data",
    task="Choose watermark and output mode so that stated late events count.",
    entry="labs.exercises.checker.spark_calls:with_stream",
    seconds=40,
    scenarios=spark_scenarios(
        "query",
        [
            (
                "in order",
                "A log in order; its last request is 30 s after the end of the last window.",
                ended(in_order()),
            ),
            ("20 seconds late", "Two requests are 20 s behind the newest one.", ended(late_by(20_000))),
            (
                "an hour late",
                "Requests an hour and ten minutes late, and one for a window that came out.",
                much_too_late(),
            ),
            ("state", "A log in order; then the state is looked at.", ended(in_order(), also=forgets)),
        ],
    ),
    hints={
        "lost": "A request came too late for its window, or the window never came out. The watermark is the newest "
        "event time minus the delay; a window is final when the watermark has passed its end.",
        "lost/in order": "No request was late, and results are missing: when does the watermark pass the end of the "
        "last window? The newest request is 30 s later. A delay longer than that keeps it back.",
        "lost/20 seconds late": "Requests were dropped that are 20 s behind: the window of such a request must not be "
        "final yet. Which delay keeps it open?",
        "doubled": "A result came out more than once, and a topic takes nothing back. Which output mode waits until a "
        "result is final?",
        "wrong": "A window came out in which nothing was requested, or which had come out before. Which time is the "
        "window about, and what may still change it?",
        "remembers": "Something in the query keeps rows for ever. Each stateful operator (a dropDuplicates too) needs "
        "the watermark and a key that contains the event time to know what it may forget.",
        "crashed: AnalysisException": "Spark refuses some combinations: append mode needs a watermark, on the column "
        "of the window, set before the aggregation.",
        "signature": "query(requests) returns two values: (counts, output_mode). counts has the columns window, ip and "
        "count.",
    },
    limits=Limits(seconds=150, memory=5_000),
    warm=True,
)
