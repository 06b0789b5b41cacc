"""Carry a schedule out on the real Kafka: each driver is a process, and the network does what the schedule says.

The proxy holds requests back and delivers them late, twice or not at all; SIGKILL is a crash, SIGSTOP a sleep; the
supervisor's part and the source are played here. Before each step the driver itself says which one it takes, and
after each what came back: a schedule that is not what happens is refused at the step where it differs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Producer
from kafka import TopicPartition

from labs.equipment.topics import admin, create_topic, remove_topics
from labs.evidence.readers.decided import wait_until_decided
from labs.faults.kafka_contents import said as said_of
from labs.faults.proxy import HeldRequest, Passage, Request
from labs.schedules.model.kafka import Stage
from labs.schedules.recorder import Recorder
from labs.schedules.replay.base_player import BasePlayer
from labs.schedules.replay.bench import LATE, PATIENCE, CannotPlay, ReplayBench
from labs.schedules.replay.driver import DONE, Driver, Step
from labs.schedules.replay.marker import last_marker
from labs.schedules.replay.played_driver import PlayedDriver
from labs.schedules.schedule import HELD, STARTS, Event, Schedule

KINDS = {
    "fence": Request.INIT_PRODUCER_ID,
    "row": Request.PRODUCE,
    "marker": Request.PRODUCE,
    "commit": Request.END_TXN,
}


class Player(BasePlayer[Driver]):
    """Plays one schedule of a stage on a bench, with topics and a checkpoint of its own. A context manager."""

    def __init__(
        self,
        stage: Stage,
        bench: ReplayBench,
        expires: bool = False,
        driver: Callable[[str, dict[str, Any]], Driver] = PlayedDriver,
    ):
        if stage.epoch_by_commit:
            raise CannotPlay("an epoch with each commit: the client library that the lab uses does not ask for it")
        super().__init__(stage, bench, expires, PATIENCE)
        self._new_driver, self._marker_topic = driver, f"{self.name}-marker"
        self._held: dict[tuple[str, Step], HeldRequest] = {}
        self._delivered: set[tuple[str, Step]] = set()
        self._at = "before the first step"
        self.told: list[Event] = []  # each step with the answer as its driver gives it, who knows no wire
        self._recorder = Recorder(bench.proxy, self.topic, self._marker_topic, driver_of=self._driver_of)

    def start_first(self) -> None:
        """Start driver 1, where everything it sends is recorded."""
        if self._new_driver is PlayedDriver:  # the sink makes its own
            create_topic(self.direct, self._marker_topic, partitions=1, cleanup_policy="compact,delete")
        self._stack.callback(remove_topics, self.direct, self._marker_topic)
        self._stack.callback(self._bench.proxy.disarm)
        self._stack.enter_context(self._recorder)
        self._start("driver 1", 0)

    def play(self, schedule: Schedule) -> Schedule:
        """Carry out all steps, and return what happened. Raises CannotPlay.

        Its requests, epochs and answers are those on the wire; what a reader sees was asked of one after each step.
        """
        for n, event in enumerate(schedule.events, 1):
            self.step(event, n)
        return self.happened(schedule.stage)

    def happened(self, stage: str) -> Schedule:
        """Return what has happened so far, as it went over the wire."""
        return self._recorder.schedule(stage)

    def step(self, event: Event, number: int) -> Event:
        """Carry out one step, and return it with the driver's answer and what a reader sees. Raises CannotPlay."""
        self._at = f"step {number} ({event._replace(answer='')})"
        heard = self._recorder.heard
        try:
            answer = self._carry_out(event)
            carried = event.action != "lose" and (event.request or event.action) in KINDS
            if not carried or self._recorder.heard == heard:  # or the client refused it by itself
                self._recorder.tell(self._told(event, answer))
            sees = self._look()
            self._recorder.looked(self._seen)
            self.told.append(event._replace(answer=answer, sees=sees))
        except (TimeoutError, RuntimeError, OSError) as error:
            if isinstance(error, CannotPlay):
                raise
            raise self._refuse(str(error)) from error
        return self.told[-1]

    def marker(self) -> tuple[int, int] | None:
        """Return the marker that is committed now, read from Kafka: its batch, and where that was planned to end."""
        return last_marker(self.direct, self._marker_topic)

    def due(self) -> range:
        """Return the records whose batch the checkpoint notes as done."""
        noted = self.checkpoint.noted
        return range(self.checkpoint.planned[noted] if noted >= 0 else 0)

    @property
    def drivers(self) -> Mapping[str, Driver]:
        """All that were started, dead ones too, by name."""
        return self._drivers

    def upcoming(self, name: str) -> Step | None:
        """Ask a driver for its next step; None where it takes none: it has ended, sleeps, or waits for an answer."""
        driver = self._drivers[name]
        if not driver.alive or driver.asleep:
            return None
        self._hear_late(driver)
        return driver.peek() if driver.alive and not driver.taking else None

    def finish(self) -> str:
        """Let everybody sleep, and a fresh driver go on from the checkpoint undisturbed. Return where it ended."""
        self.end()
        name, number = f"driver {len(self._drivers) + 1}", 0
        self._start(name, self.checkpoint.noted + 1)
        while (driver := self._drivers[name]).alive:
            number += 1
            self._at = f"the undisturbed end, step {number}"
            step = driver.begin()
            if step.action == "end":
                return DONE
            answer = driver.answer()
            self._settle(step.action, answer)
        return answer

    def end(self) -> None:
        """Kill all drivers, and have Kafka abort what they left open, as the next driver would."""
        super().end()
        self._bench.proxy.disarm()
        if self.stage.transactional:
            settings = {"bootstrap.servers": self.direct, "transactional.id": self.name, "log_level": 0}
            Producer(settings).init_transactions(PATIENCE)

    # Whose step it is

    def _carry_out(self, event: Event) -> str:
        if event.actor == "network":
            return self._carry(event)
        if event.actor == "supervisor":
            return self._supervise(event)
        if event.actor == "broker":
            return self._expire(event)
        if event.action == "crash":
            if event.actor not in self._drivers:
                raise self._refuse(f"{event.actor} was not started")
            self._drivers[event.actor].kill()  # who has ended by himself will not be missed
            return ""
        if event.action in ("freeze", "wake"):
            driver = self._driver(event.actor)
            driver.sleep() if event.action == "freeze" else driver.wake()
            return ""
        return self._drive(event)

    def _drive(self, event: Event) -> str:
        """Let a driver take its next step, and hold its request back if the schedule says so."""
        driver = self._driver(event.actor)
        if driver.asleep:
            driver.wake()
        self._hear_late(driver)
        if not driver.alive:
            raise self._refuse(f"{driver.name} has ended")
        if driver.taking:
            raise self._refuse(f"{driver.name} still waits for the answer to its {driver.taking.action}")
        held = self._hold(event) if event.answer == HELD else None
        step = driver.begin()
        if step != (event.action, event.batch, event.row if event.action == "row" else None):
            raise self._refuse(f"{driver.name}'s next step is another: {_words(step)}")
        if held:
            held.wait(PATIENCE)
            self._held[driver.name, step] = held
            self._delivered.discard((driver.name, step))  # a program may commit twice for a batch
            return HELD
        answer = driver.answer()
        self._settle(event.action, answer)
        return answer

    def _hear_late(self, driver: Driver) -> None:
        """Let a driver that is awake again hear an answer that came while it slept."""
        if driver.taking and (driver.name, driver.taking) in self._delivered:
            self._settle(driver.taking.action, driver.answer())

    def _hold(self, event: Event) -> HeldRequest:
        if event.action not in KINDS:
            raise self._refuse("this cannot be held: it is not one request, or none at all")
        kind, client = KINDS[event.action], self._client(event.actor)
        return self._bench.proxy.hold_next_request(kind, cut_client=False, client_id=client)

    def _carry(self, event: Event) -> str:
        """Deliver a request that was held, or lose it."""
        key = event.whose, Step(event.request, event.batch, event.row if event.request == "row" else None)
        if not (held := self._held.get(key)):
            raise self._refuse(f"{event.whose} has no such request under way")
        if event.action == "lose":
            del self._held[key]
            return ""
        driver = self._drivers[event.whose]
        again = key in self._delivered
        self._delivered.add(key)
        answer = held.repeat() if again else held.deliver()
        if not again and driver.alive and driver.taking and not driver.asleep:
            said = driver.answer()
        else:
            said = said_of(answer.error_code or 0)
        self._settle(event.request, said)
        return said

    def _supervise(self, event: Event) -> str:
        if event.action not in STARTS:
            raise self._refuse(f"the supervisor does not {event.action!r} here")
        for driver in self._drivers.values():
            if driver.alive and event.action == "restore and start":
                driver.kill()
            elif driver.alive and not driver.asleep:
                driver.sleep()
        if event.action == "restore and start":
            self.checkpoint.roll_back()
        batch = self.checkpoint.noted + 1
        if event.batch not in (None, batch):
            raise self._refuse(f"the checkpoint goes on with batch {batch}")
        self._start(event.whose, batch)
        return ""

    def _expire(self, event: Event) -> str:
        if event.action == "forget the marker":
            with admin(self._bench.direct) as kafka:
                kafka.delete_records({TopicPartition(self._marker_topic, 0): -1})  # up to its end
        elif self.timeout != LATE:
            raise self._refuse("no transaction times out here: a schedule with one is played with `expires`")
        else:
            self._settle("commit", "ok")  # the transaction is decided once Kafka has aborted it
        return ""

    # What they need

    def _start(self, name: str, batch: int) -> None:
        if name in self._drivers:
            raise self._refuse(f"{name} was started before")
        settings = self._settings(name, self._bench.proxy.bootstrap_servers)
        settings |= {"batch": batch, "marker_topic": self._marker_topic}
        self._drivers[name] = self._new_driver(name, settings)

    def _told(self, event: Event, answer: str) -> Event:
        planned, row = self.checkpoint.planned, None
        if event.action == "plan" and event.batch is not None and event.batch < len(planned):
            row = planned[event.batch] - 1
        return event._replace(answer=answer, epoch=None, sees=None, row=event.row if row is None else row)

    def _driver_of(self, passage: Passage) -> str | None:
        return next((name for name in self._drivers if passage.client_id == self._client(name)), None)

    def _driver(self, name: str) -> Driver:
        driver = self._drivers.get(name)
        if driver is None:
            raise self._refuse(f"{name} was not started")
        if not driver.alive:
            raise self._refuse(f"{name} is dead")
        return driver

    def _settle(self, action: str, answer: str) -> None:
        """Wait until a commit that was acknowledged is to be seen: Kafka answers as soon as it is certain."""
        if action == "commit" and answer == "ok":
            for topic in (self.topic, self._marker_topic):
                decided = wait_until_decided(self._bench.direct, topic, PATIENCE)
                if not all(decided.values()):
                    raise TimeoutError(f"a transaction in {topic} stays undecided")

    def _refuse(self, why: str) -> CannotPlay:
        return CannotPlay(f"{self._at} cannot be carried out: {why}")


def _words(step: Step) -> str:
    if step.action == "end":
        return "none, since all its batches are done"
    row = "" if step.row is None else f", record {step.row}"
    return f"{step.action} of batch {step.batch}{row}"
