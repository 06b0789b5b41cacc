"""A schedule of what really happened: from the messages that came through the proxy, and a sink's fault points.

    with Recorder(proxy, "results", "sink-marker", record_of=int) as recorder:
        options = {"writers": "driver", "client_id": "driver 1 of sink", "points": recorder.points}
        sink = ExactlyOnceKafkaSink("sink", "results", **options, …)
        … run a query with it …
    print(recorder.schedule("the sink"))

Guarantee: requests, epochs, records and answers are those on the wire, in the proxy's order. Where it stops: what does
not go over the wire has to be told, and so has the reading of a marker, which is not read here. `points` tells that a
batch is planned when the sink begins to write it, though Spark has planned it before; and that it is noted when the
sink is done, though Spark notes it only then. A driver whose epoch is old before its first record is refused already
when it registers the partition, and sends no record: that refusal is not read, and has to be told. All produce requests
are kept as long as the recorder is, which is meant for as many batches as one can draw.
"""

from __future__ import annotations

from typing import Any

from exactly_once_kafka.points import BEFORE_CHECKPOINT, BEFORE_WRITE, Points, pass_by
from labs.faults.proxy import Proxy, Sighting
from labs.schedules.recording import Entry, Looked, events_of
from labs.schedules.schedule import Event, Schedule
from labs.schedules.wire import KINDS, Names


class Recorder:
    """Watches a proxy for as long as it is entered, or from its `start` on.

    Recorded are the records of `results_topic`, the markers of `marker_topic`, and the epochs, commits and aborts of
    all drivers. `driver_of` gives the driver's name for a message's `Passage`, None for what is nobody's; by default
    "driver 1" for the client id "driver 1 of …". `record_of` gives a record's number for its value, by default that
    of a replay's; `batch_of_marker` a batch's for a marker's value. A record's own batch is in its header `batch_id`.
    With `sequences=True` the numbers of idempotent producers are recorded too, and which records Kafka knew already.

    What a read_committed reader sees is put together from Kafka's answers (`ReaderView` says how), unless `looked`
    is told.
    """

    def __init__(self, proxy: Proxy, results_topic: str, marker_topic: str | None = None, **names: Any):
        self._proxy, self._names = proxy, Names(results_topic, marker_topic, **names)
        self._entries: list[Entry] = []

    def start(self) -> Recorder:
        """Watch from now on, for as long as there is the proxy."""
        self._proxy.watch(self._see)
        return self

    def __enter__(self) -> Recorder:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self._proxy.unwatch(self._see)

    @property
    def heard(self) -> int:
        """How many messages and words there are so far."""
        return len(self._entries)

    def tell(self, event: Event) -> None:
        """Add what nobody sees on the wire: a crash, a start, a plan, a marker that was read."""
        self._entries.append(event)

    def starts(self, program: str) -> None:
        """Tell that a supervisor starts a program, such as "producer 2"."""
        self.tell(Event("supervisor", "start", whose=program))

    def wakes(self, program: str) -> None:
        """Tell that a program wakes up, which everybody took for dead."""
        self.tell(Event(program, "wake"))

    def looked(self, records: tuple[int, ...]) -> None:
        """Say what a reader sees now, who has just been asked; once said, it has to be said after each step."""
        self._entries.append(Looked(records))

    @property
    def points(self) -> Points:
        """What the sink of driver 1 takes as `points=`."""
        return self.points_and(pass_by)

    def points_and(self, points: Points, driver: str = "driver 1") -> Points:
        """Return what a sink takes as `points=`, to tell of its plans and notes, and then to pass on to `points`.

        A batch that `points` breaks before its checkpoint is not noted.
        """

        def tell_and_pass_on(point: str, batch_id: int) -> None:
            if point == BEFORE_WRITE:
                self.tell(Event(driver, "plan", batch_id))
            points(point, batch_id)
            if point == BEFORE_CHECKPOINT:
                self.tell(Event(driver, "note", batch_id))

        return tell_and_pass_on

    def schedule(self, stage: str, anomaly: str | None = None) -> Schedule:
        """Return what has happened so far, as of the stage `stage`, with what somebody has judged of it.

        Raises ValueError for a driver's message that cannot be read, or a record whose number `record_of` cannot tell.
        """
        return Schedule(stage, events_of(list(self._entries), self._names), anomaly)

    def _see(self, sighting: Sighting) -> None:
        if sighting.request.kind in KINDS:
            self._entries.append(sighting)
