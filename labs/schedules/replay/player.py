"""Carry a schedule out on the real Kafka, step by step, and record what happens.

A driver is a process; SIGKILL is its crash, and SIGSTOP its sleep. Before each step the driver says which step it
takes, and after it what came back. The network is the proxy: it holds requests, and delivers them late, twice or never.

`Player` plays the drivers of a sink. `TwoPhasePlayer` plays two-phase commit by hand, and `DownstreamPlayer` consumers
that read results and write them to another topic. Each refuses a schedule at the first step that cannot be carried out.
"""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as GroupPartition
from kafka import TopicPartition

from labs.equipment.topics import admin, create_topic, remove_topics
from labs.equipment.waiting import eventually
from labs.evidence.readers.results import read_visible, wait_until_decided
from labs.faults.kafka_messages import said
from labs.faults.proxy import HeldRequest, Passage, Proxy, Request
from labs.pipeline.records import WINDOW_MS, result_value
from labs.schedules.model.drivers_and_network import Stage
from labs.schedules.recorder import Recorder
from labs.schedules.replay.driver import DONE, Driver, PlayedDriver, Step
from labs.schedules.replay.gates import SmallCheckpoint, name_of
from labs.schedules.replay.replay_bench import LATE, NEVER_LATE, PATIENCE, CannotPlay, ReplayBench, last_marker
from labs.schedules.schedule import HELD, Event, Schedule

OPEN_FOR_EVER = 5.0  # seconds after which an open transaction counts as one that nobody will end
KINDS = {
    "fence": Request.INIT_PRODUCER_ID,
    "row": Request.PRODUCE,
    "marker": Request.PRODUCE,
    "commit": Request.END_TXN,
}


class Sent(NamedTuple):
    """A request under way: whose it is, and for which of its steps."""

    driver: str
    step: Step


class Network:
    """What is under way between the drivers of one replay and Kafka."""

    def __init__(self, proxy: Proxy):
        self._proxy = proxy
        self._held: dict[Sent, HeldRequest] = {}
        self._delivered: set[Sent] = set()

    def hold_next(self, action: str, client: str) -> HeldRequest:
        """Have the proxy hold the client's next request of this kind. Raises RuntimeError if it cannot be held."""
        if action not in KINDS:
            raise RuntimeError(f"this cannot be held: {action!r} is no request, or it is several")
        return self._proxy.hold_next_request(KINDS[action], cut_client=False, client_id=client)

    def keep(self, sent: Sent, held: HeldRequest) -> None:
        """Wait until the proxy has the request. Raises TimeoutError."""
        held.wait(PATIENCE)
        self._held[sent] = held
        self._delivered.discard(sent)  # a program may commit twice for a batch

    def was_delivered(self, sent: Sent) -> bool:
        return sent in self._delivered

    def deliver(self, sent: Sent) -> str:
        """Deliver a request, for the first time or once more, and return what Kafka says. Raises RuntimeError."""
        held, again = self._kept(sent), sent in self._delivered
        self._delivered.add(sent)
        answer = held.repeat() if again else held.deliver()
        return said(answer.error_code or 0)

    def lose(self, sent: Sent) -> None:
        """Never deliver it. Raises RuntimeError if it is not under way."""
        self._kept(sent)
        del self._held[sent]

    def _kept(self, sent: Sent) -> HeldRequest:
        if sent not in self._held:
            raise RuntimeError(f"{sent.driver} has no such request under way")
        return self._held[sent]


class BasePlayer:
    """Plays one schedule of a stage on a bench. A context manager: it removes its topics and ends its drivers.

    `expires`: Kafka aborts open transactions soon. `patience`: how many seconds `judge` waits for a transaction
    that is still open in the end. A subclass says what its drivers are.
    """

    program = ""  # that a driver runs, one of replay.program.PROGRAMS
    first = "driver 1"  # runs from the start
    patience = OPEN_FOR_EVER

    def __init__(self, stage: Any, bench: ReplayBench, expires: bool = False):
        self.stage, self._bench = stage, bench
        self.name = f"replay-{uuid.uuid4().hex[:12]}"
        self.topic = f"{self.name}-results"
        self.timeout = LATE if expires else NEVER_LATE
        self._drivers: dict[str, Driver] = {}
        self._network = Network(bench.proxy)
        self._seen: tuple[int, ...] = ()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        directory = Path(tempfile.mkdtemp(prefix="labs-replay-"))
        self._stack.callback(shutil.rmtree, directory, ignore_errors=True)
        self.checkpoint = SmallCheckpoint(directory)
        create_topic(self.direct, self.topic, partitions=1)
        self._stack.callback(remove_topics, self.direct, self.topic)
        self.start_first()
        return self

    def __exit__(self, *_: object) -> None:
        for driver in self._drivers.values():
            driver.close()
        self._stack.close()

    # What a subclass changes

    @property
    def bootstrap_servers(self) -> str:
        """Where the drivers connect to Kafka."""
        return self.direct

    @property
    def written(self) -> tuple[str, ...]:
        """The topics that a transaction writes to."""
        return (self.topic,)

    def start_first(self) -> None:
        """Make what the first driver needs, and start it."""
        self._start(self.first)

    def place(self) -> dict[str, int]:
        """Return where a driver that starts now goes on: {"batch": number} or {"record": number}."""
        return {"batch": self.checkpoint.noted + 1}

    def due(self) -> range:
        """Return the records that are noted as done."""
        return range((self.checkpoint.noted + 1) * self.stage.rows)

    def more_settings(self) -> dict[str, Any]:
        return {}

    def new_driver(self, name: str, settings: dict[str, Any]) -> Driver:
        return PlayedDriver(name, settings, self.program)

    # What others ask

    @property
    def direct(self) -> str:
        """Kafka's address past the proxy."""
        return self._bench.direct

    @property
    def records(self) -> range:
        """All records of the source."""
        return range(self.stage.batches * self.stage.rows)

    def visible(self) -> tuple[int, ...]:
        """Return the records that a read_committed reader sees now."""
        return tuple(int(result.ip.split()[1]) for result in read_visible(self.direct, self.topic))

    def end(self) -> None:
        """Kill all drivers; what is open stays so."""
        for driver in self._drivers.values():
            driver.kill()

    # How a schedule is carried out

    def play(self, schedule: Schedule) -> Schedule:
        """Carry out all steps, and return them with what came back and what a reader sees. Raises CannotPlay."""
        steps = tuple(self.step(event, n) for n, event in enumerate(schedule.events, 1))
        return schedule._replace(events=steps, anomaly=None)

    def step(self, event: Event, number: int) -> Event:
        """Carry out one step, and return it with the driver's answer and what a reader sees. Raises CannotPlay."""
        with _refused_at(f"step {number} ({event._replace(answer='')})"):
            return event._replace(answer=self._carry_out(event), sees=self._look())

    def _look(self) -> tuple[int, ...] | None:
        """Return what a reader sees now, if that has changed since the last look."""
        before, self._seen = self._seen, self.visible()
        return None if self._seen == before else self._seen

    def _carry_out(self, event: Event) -> str:
        """Let its actor do what an event says, and return what came back.

        Raises RuntimeError, which says what happened instead, TimeoutError or OSError.
        """
        if event.actor == "network":
            return self._carry(event)
        if event.actor == "supervisor":
            self._supervise(event)
        elif event.actor == "broker":
            self._expire(event)
        elif event.action == "crash":
            self._driver(event.actor, dead_too=True).kill()  # it may have ended by itself
        elif event.action == "freeze":
            self._driver(event.actor).sleep()
        elif event.action == "wake":
            self._driver(event.actor).wake()
        else:
            return self._drive(self._driver(event.actor), event)
        return ""

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
        if step != (event.action, event.batch, None if event.action == "plan" else event.row):
            raise RuntimeError(f"{driver.name}'s next step is another: {step}")
        if held:
            self._network.keep(Sent(driver.name, step), held)
            return HELD
        answer = driver.answer()
        self._wait_for_the_end(event.action, answer)
        return answer

    def _hear_late(self, driver: Driver) -> None:
        """Let a driver that is awake again hear an answer that came while it slept."""
        if driver.taking and self._network.was_delivered(Sent(driver.name, driver.taking)):
            self._wait_for_the_end(driver.taking.action, driver.answer())

    def _carry(self, event: Event) -> str:
        """Deliver a request that was held, or lose it."""
        sent = Sent(event.whose, Step(event.request, event.batch, event.row if event.request == "row" else None))
        if event.action == "lose":
            self._network.lose(sent)
            return ""
        again = self._network.was_delivered(sent)
        answer, driver = self._network.deliver(sent), self._drivers[event.whose]
        if not again and driver.alive and driver.taking and not driver.asleep:
            answer = driver.answer()
        self._wait_for_the_end(event.request, answer)
        return answer

    def _supervise(self, event: Event) -> None:
        """Start the next driver from the checkpoint, or from an older one, while the others sleep or are dead."""
        restore = event.action == "restore and start"
        if not restore and event.action not in ("start", "start at record"):
            raise RuntimeError(f"the supervisor does not {event.action!r} here")
        for driver in self._drivers.values():
            if driver.alive and restore:
                driver.kill()
            elif driver.alive and not driver.asleep:
                driver.sleep()
        if restore:
            self.checkpoint.roll_back()
        [(unit, number)] = self.place().items()
        if (event.batch if unit == "batch" else event.row) not in (None, number):
            raise RuntimeError(f"the {'checkpoint' if unit == 'batch' else 'group'} goes on with {unit} {number}")
        self._start(event.whose)

    def _expire(self, event: Event) -> None:
        """Wait until Kafka has aborted what is open for too long."""
        if self.timeout != LATE:
            raise RuntimeError("no transaction times out here: start the player with `expires=True`")
        self._wait_for_the_end("commit", "ok")

    def _start(self, name: str) -> None:
        if name in self._drivers:
            raise RuntimeError(f"{name} was started before")
        settings = {
            **dataclasses.asdict(self.stage),
            "name": self.name,
            "client_id": self._client(name),
            "bootstrap_servers": self.bootstrap_servers,
            "topic": self.topic,
            "checkpoint": str(self.checkpoint.directory),
            "transaction_timeout_ms": self.timeout,
            **self.place(),
            **self.more_settings(),
        }
        self._drivers[name] = self.new_driver(name, settings)

    def _driver(self, name: str, dead_too: bool = False) -> Driver:
        driver = self._drivers.get(name)
        if driver is None:
            raise RuntimeError(f"{name} was not started")
        if not (driver.alive or dead_too):
            raise RuntimeError(f"{name} is dead")
        return driver

    def _wait_for_the_end(self, action: str, answer: str) -> None:
        """Wait until readers see a commit that was acknowledged: Kafka answers as soon as the commit is certain."""
        if action == "commit" and answer == "ok":
            for topic in self.written:
                if not all(wait_until_decided(self.direct, topic, PATIENCE).values()):
                    raise TimeoutError(f"a transaction in {topic} has not ended within {PATIENCE:g} s")

    def _client(self, name: str) -> str:
        return f"{name} of {self.name}"


class DownstreamPlayer(BasePlayer):
    """Consumers of a topic that was written beforehand."""

    program, first = "consumer", "consumer 1"

    def start_first(self) -> None:
        self._source = f"{self.name}-source"
        create_topic(self.direct, self._source, partitions=1)
        self._stack.callback(remove_topics, self.direct, self._source)
        producer = Producer({"bootstrap.servers": self.direct, "acks": "all", "log_level": 0})
        for record in self.records:
            producer.produce(self._source, result_value(record * WINDOW_MS, f"record {record}", 1), partition=0)
        if producer.flush(PATIENCE):
            raise CannotPlay("the source could not be written")
        self._group = Consumer({"bootstrap.servers": self.direct, "group.id": self.name, "log_level": 0})
        self._stack.callback(self._group.close)
        super().start_first()

    def more_settings(self) -> dict[str, Any]:
        return {"source_topic": self._source, "records": len(self.records)}

    def place(self) -> dict[str, int]:
        return eventually(self._committed, PATIENCE)  # a broker that has just started coordinates no groups yet

    def _committed(self) -> dict[str, int]:
        [committed] = self._group.committed([GroupPartition(self._source, 0)], timeout=PATIENCE)
        return {"record": max(0, committed.offset)}

    def due(self) -> range:
        return range(self.place()["record"])


class TwoPhasePlayer(BasePlayer):
    """Jobs that prepare, decide and finish."""

    program = "two phases"


class Player(BasePlayer):
    """The drivers of a sink, each of which connects to Kafka through the proxy.

    They are processes that run the stage's protocol, or what `driver` makes of a name and its settings.
    """

    patience = PATIENCE

    def __init__(
        self,
        stage: Stage,
        bench: ReplayBench,
        expires: bool = False,
        driver: Callable[[str, dict[str, Any]], Driver] = PlayedDriver,
    ):
        if stage.epoch_by_commit:
            raise CannotPlay("the client library of the lab cannot ask for an epoch with each commit")
        super().__init__(stage, bench, expires)
        self._driver_class, self._runs_program = driver, driver is PlayedDriver
        self._marker_topic = f"{self.name}-marker"
        self.told: list[
            Event
        ] = []  # each step with the answer that the driver has told, which may differ from the one on the wire
        self._recorder = Recorder(bench.proxy, self.topic, self._marker_topic, driver_of=self._driver_of)

    @property
    def bootstrap_servers(self) -> str:
        return self._bench.proxy.bootstrap_servers

    @property
    def written(self) -> tuple[str, ...]:
        return self.topic, self._marker_topic

    def start_first(self) -> None:
        """Start driver 1, and record everything it sends. The sink makes the marker's topic by itself."""
        self._stack.enter_context(self._recorder)
        if self._runs_program:
            create_topic(self.direct, self._marker_topic, partitions=1, cleanup_policy="compact,delete")
        self._stack.callback(remove_topics, self.direct, self._marker_topic)
        self._stack.callback(self._bench.proxy.disarm)
        super().start_first()

    def more_settings(self) -> dict[str, Any]:
        protocol = name_of(self.stage.protocol) if self._runs_program else None
        return {"marker_topic": self._marker_topic, "transactional": self.stage.transactional, "protocol": protocol}

    def new_driver(self, name: str, settings: dict[str, Any]) -> Driver:
        return self._driver_class(name, settings)

    def end(self) -> None:
        """Kill all drivers, and have Kafka abort what they left open, as the next driver would."""
        super().end()
        self._bench.proxy.disarm()
        if self.stage.transactional:
            settings = {"bootstrap.servers": self.direct, "transactional.id": self.name, "log_level": 0}
            Producer(settings).init_transactions(PATIENCE)

    def play(self, schedule: Schedule) -> Schedule:
        """Carry out all steps, and return what happened. Raises CannotPlay.

        Its requests, epochs and answers are those on the wire. A reader was asked after each step what it sees.
        """
        return self.happened(super().play(schedule).stage)

    def happened(self, stage: str) -> Schedule:
        """Return what has happened so far, as it went over the wire."""
        return self._recorder.schedule(stage)

    def step(self, event: Event, number: int) -> Event:
        heard = self._recorder.heard
        with _refused_at(f"step {number} ({event._replace(answer='')})"):
            answer = self._carry_out(event)
            carried = event.action != "lose" and (event.request or event.action) in KINDS
            if not carried or self._recorder.heard == heard:  # or the client has refused it by itself
                self._recorder.tell(self._as_told(event, answer))
            sees = self._look()
            self._recorder.looked(self._seen)
            self.told.append(event._replace(answer=answer, sees=sees))
        return self.told[-1]

    @property
    def drivers(self) -> Mapping[str, Driver]:
        """All drivers that were started, dead ones too, by name."""
        return self._drivers

    def upcoming(self, name: str) -> Step | None:
        """Ask a driver for its next step; None if it takes none: it has ended, sleeps, or waits for an answer."""
        driver = self._drivers[name]
        if not driver.alive or driver.asleep:
            return None
        self._hear_late(driver)
        step = driver.peek() if driver.alive and not driver.taking else None
        return None if step and step.action == "wait" else step

    def finish(self) -> str:
        """Let a fresh driver go on from the checkpoint undisturbed, and return how it ended. Raises CannotPlay."""
        self.end()
        name = f"driver {len(self._drivers) + 1}"
        with _refused_at("the undisturbed end"):
            self._start(name)
            while (driver := self._drivers[name]).alive:
                step = driver.begin()
                if step.action == "end":
                    return DONE
                answer = driver.answer()
                self._wait_for_the_end(step.action, answer)
        return answer

    def marker(self) -> tuple[int, int] | None:
        """Return the marker that is committed now, read from Kafka: its batch, and where that was planned to end."""
        return last_marker(self.direct, self._marker_topic)

    def due(self) -> range:
        noted = self.checkpoint.noted
        return range(self.checkpoint.planned[noted] if noted >= 0 else 0)

    def _expire(self, event: Event) -> None:
        """Let Kafka abort what is open for too long, or delete the marker."""
        if event.action != "forget the marker":
            return super()._expire(event)
        with admin(self.direct) as kafka:
            kafka.delete_records({TopicPartition(self._marker_topic, 0): -1})  # up to its end

    def _as_told(self, event: Event, answer: str) -> Event:
        planned, row = self.checkpoint.planned, None
        if event.action == "plan" and event.batch is not None and event.batch < len(planned):
            row = planned[event.batch] - 1
        return event._replace(answer=answer, epoch=None, sees=None, row=event.row if row is None else row)

    def _driver_of(self, passage: Passage) -> str | None:
        return next((name for name in self._drivers if passage.client_id == self._client(name)), None)


@contextmanager
def _refused_at(where: str) -> Iterator[None]:
    """Raise CannotPlay, which says where something went wrong."""
    try:
        yield
    except (TimeoutError, RuntimeError, OSError) as error:
        raise CannotPlay(f"{where} cannot be carried out: {error}") from error
