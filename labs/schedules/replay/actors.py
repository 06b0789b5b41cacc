"""Who acts in a replay on the real Kafka: its drivers, the network, the supervisor and the broker, one event at a time.

A driver is a process; SIGKILL is its crash, SIGSTOP its sleep. Before each step the driver itself says which one it
takes, and after it what came back. Whatever cannot be carried out is a RuntimeError that says what happens instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import Producer
from kafka import TopicPartition

from labs.equipment.topics import admin, create_topic, remove_topics
from labs.evidence.readers.decided import wait_until_decided
from labs.schedules.model.kafka import Stage
from labs.schedules.replay.base_player import BasePlayer
from labs.schedules.replay.bench import LATE, PATIENCE, CannotPlay, ReplayBench
from labs.schedules.replay.driver import Driver, Step
from labs.schedules.replay.network import Network, Sent
from labs.schedules.replay.played_driver import PlayedDriver
from labs.schedules.schedule import HELD, Event


class Actors(BasePlayer[Driver]):
    """The actors of one replay, with topics and a checkpoint of their own. A context manager."""

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
        self._network = Network(bench.proxy)

    def start_first(self) -> None:
        """Start driver 1, and make the marker's topic, which the sink makes by itself."""
        if self._new_driver is PlayedDriver:
            create_topic(self.direct, self._marker_topic, partitions=1, cleanup_policy="compact,delete")
        self._stack.callback(remove_topics, self.direct, self._marker_topic)
        self._stack.callback(self._bench.proxy.disarm)
        self._start("driver 1", 0)

    def end(self) -> None:
        """Kill all drivers, and have Kafka abort what they left open, as the next driver would."""
        super().end()
        self._bench.proxy.disarm()
        if self.stage.transactional:
            settings = {"bootstrap.servers": self.direct, "transactional.id": self.name, "log_level": 0}
            Producer(settings).init_transactions(PATIENCE)

    def carry_out(self, event: Event) -> str:
        """Let its actor do what an event says, and return what came back.

        Raises RuntimeError, TimeoutError, OSError.
        """
        if event.actor == "network":
            return self._carry(event)
        if event.actor == "supervisor":
            return self._supervise(event)
        if event.actor == "broker":
            return self._expire(event)
        if event.action == "crash":
            self._driver(event.actor, dead_too=True).kill()  # who has ended by himself will not be missed
            return ""
        driver = self._driver(event.actor)
        if event.action in ("freeze", "wake"):
            strike = driver.sleep if event.action == "freeze" else driver.wake
            strike()
            return ""
        return self._drive(driver, event)

    def _drive(self, driver: Driver, event: Event) -> str:
        """Let a driver take its next step, and hold its request back if the schedule says so."""
        if driver.asleep:
            driver.wake()
        self._hear_late(driver)
        if not driver.alive:
            raise RuntimeError(f"{driver.name} has ended")
        if driver.taking:
            raise RuntimeError(f"{driver.name} still waits for the answer to its {driver.taking.action}")
        held = self._network.hold_next(event.action, self._client(driver.name)) if event.answer == HELD else None
        step = driver.begin()
        if step != (event.action, event.batch, event.row if event.action == "row" else None):
            raise RuntimeError(f"{driver.name}'s next step is another: {step}")
        if held:
            self._network.keep(Sent(driver.name, step), held)
            return HELD
        answer = driver.answer()
        self._settle(event.action, answer)
        return answer

    def _hear_late(self, driver: Driver) -> None:
        """Let a driver that is awake again hear an answer that came while it slept."""
        if driver.taking and self._network.was_delivered(Sent(driver.name, driver.taking)):
            self._settle(driver.taking.action, driver.answer())

    def _carry(self, event: Event) -> str:
        """Deliver a request that was held, or lose it."""
        sent = Sent(event.whose, Step(event.request, event.batch, event.row if event.request == "row" else None))
        if event.action == "lose":
            self._network.lose(sent)
            return ""
        again = self._network.was_delivered(sent)
        said, driver = self._network.deliver(sent), self._drivers[event.whose]
        if not again and driver.alive and driver.taking and not driver.asleep:
            said = driver.answer()
        self._settle(event.request, said)
        return said

    def _supervise(self, event: Event) -> str:
        """Start the next driver from the checkpoint, or from an older one, while the others sleep or are gone."""
        if event.action not in ("start", "restore and start"):
            raise RuntimeError(f"the supervisor does not {event.action!r} here")
        for driver in self._drivers.values():
            if driver.alive and event.action == "restore and start":
                driver.kill()
            elif driver.alive and not driver.asleep:
                driver.sleep()
        if event.action == "restore and start":
            self.checkpoint.roll_back()
        batch = self.checkpoint.noted + 1
        if event.batch not in (None, batch):
            raise RuntimeError(f"the checkpoint goes on with batch {batch}")
        self._start(event.whose, batch)
        return ""

    def _expire(self, event: Event) -> str:
        """Let Kafka abort what is open for too long, or delete the marker."""
        if event.action == "forget the marker":
            with admin(self._bench.direct) as kafka:
                kafka.delete_records({TopicPartition(self._marker_topic, 0): -1})  # up to its end
        elif self.timeout != LATE:
            raise RuntimeError("no transaction times out here: a schedule with one is played with `expires`")
        else:
            self._settle("commit", "ok")  # the transaction is decided once Kafka has aborted it
        return ""

    def _start(self, name: str, batch: int) -> None:
        if name in self._drivers:
            raise RuntimeError(f"{name} was started before")
        settings = self._settings(name, self._bench.proxy.bootstrap_servers)
        settings |= {"batch": batch, "marker_topic": self._marker_topic}
        self._drivers[name] = self._new_driver(name, settings)

    def _driver(self, name: str, dead_too: bool = False) -> Driver:
        driver = self._drivers.get(name)
        if driver is None:
            raise RuntimeError(f"{name} was not started")
        if not (driver.alive or dead_too):
            raise RuntimeError(f"{name} is dead")
        return driver

    def _settle(self, action: str, answer: str) -> None:
        """Wait until a commit that was acknowledged is to be seen: Kafka answers as soon as it is certain."""
        if action == "commit" and answer == "ok":
            for topic in (self.topic, self._marker_topic):
                decided = wait_until_decided(self._bench.direct, topic, PATIENCE)
                if not all(decided.values()):
                    raise TimeoutError(f"a transaction in {topic} stays undecided")
