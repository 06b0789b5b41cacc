"""The bench of a lesson: a broker and Spark; on request also a proxy in front of the broker, and a PostgreSQL.

    bench = open_bench(proxy=True)
    ... bench.servers, bench.spark, bench.proxy ...
    bench.close()

Guarantee: a lesson that was interrupted can be run again from its top: `open_bench` first closes the bench that an
earlier run left open. A single cell can be run again, too: what an interrupted cell left running is stopped, and
`new_topic`, `copy_topic`, `copy_of` and `fresh` give the cell what it found the first time. Broker, JVM and PostgreSQL
end with the kernel, however it ends.

A `Story` has steps that build on one another. Each is in a cell of its own, and each can be run again.

    def begin():
        bench.new_topic("results")
        return transactional_producer(bench.fresh("counter"))

    story = Story(begin)

    @story
    def window_1_is_committed(counter):
        ...

Executing the cell takes the step. A step that follows the last one continues from there. For a step that is run again,
or that follows one that failed or was interrupted, the story begins anew and first repeats the steps before it.
Limitations: a renamed step counts as a new one, at the end.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from IPython.core.getipython import get_ipython

from labs.desk.cells import StoppedWithItsCell
from labs.equipment.apart import kill_all_apart
from labs.equipment.broker import AnyBroker, Broker, nothing, open_broker
from labs.equipment.postgres import Postgres
from labs.equipment.topics import create_topic, end_offsets, remove_topics
from labs.equipment.waiting import eventually
from labs.exercises.checker.student_process import end_idle
from labs.faults.proxy import Proxy, proxied_broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class LessonBench:
    """The processes of a lesson. `servers` is the address for Kafka clients, through the proxy if there is one."""

    broker: AnyBroker
    proxy: Proxy | None

    def __init__(self, spark: bool = True, proxy: bool = False):
        self._open = contextlib.ExitStack()
        self._open.callback(end_idle)
        self._open.callback(kill_all_apart)
        self._spark: SparkSession | None = None
        self.proxy = None
        self._topics: set[str] = set()
        self._names = Counter[str]()
        try:
            meanwhile = self._start_spark if spark else nothing
            if proxy:
                self.broker, self.proxy = self._open.enter_context(proxied_broker(meanwhile))
            else:
                self.broker = open_broker(meanwhile)
                self._open.callback(self.broker.close)
        except BaseException:
            self.close()
            raise
        self.servers: str = self.broker.bootstrap_servers
        cells = StoppedWithItsCell(lambda: self._spark, self._restorer)
        cells.watch(get_ipython())
        self._open.callback(cells.unwatch)
        atexit.register(self.close)

    @property
    def spark(self) -> SparkSession:
        """The session. Raises RuntimeError if the bench was opened without Spark."""
        if self._spark is None:
            raise RuntimeError("this bench has no Spark: it is closed, or was opened with open_bench(spark=False)")
        return self._spark

    def new_topic(self, name: str, partitions: int = 1) -> str:
        """Create a topic and return its name. A topic of this name that the bench made before is deleted first.

        So a cell that is run again finds the topic empty. Raises KafkaUnreachable and TopicRefused.
        """
        if name in self._topics:
            remove_topics(self.servers, name)
        create_topic(self.servers, name, partitions)
        if name in self._topics:
            eventually(lambda: set(end_offsets(self.servers, name).values()) == {0})
        self._topics.add(name)
        return name

    def copy_topic(self, name: str, to: str) -> str:
        """Create the topic `to` with the committed records of `name`, including headers, and return its name.

        A cell that works on the copy can be run again. Offsets are the same unless transactions wrote the original.
        """
        from confluent_kafka import Producer

        from labs.evidence.readers.results import SENTINEL, position, read_committed

        self.new_topic(to, len(end_offsets(self.servers, name)))
        producer = Producer({"bootstrap.servers": self.servers, "enable.idempotence": True, "log_level": 0})
        for record in read_committed(self.servers, name):
            if record.key() != SENTINEL:
                at, (_, time_ms) = position(record)[0], record.timestamp()
                producer.produce(to, record.value(), record.key(), at, timestamp=time_ms, headers=record.headers())
        producer.flush(60)
        return to

    def copy_of(self, directory: str | Path) -> str:
        """Return a copy of a checkpoint, for a cell that changes it. The copy is deleted with the bench."""
        copy = tempfile.mkdtemp(prefix="labs-copy-")
        self._open.callback(shutil.rmtree, copy, ignore_errors=True)
        return str(shutil.copytree(directory, copy, dirs_exist_ok=True))

    def fresh(self, name: str) -> str:
        """Return `name`, then `name.2`, `name.3`, …: a transactional id or sink that Kafka does not know yet."""
        self._names[name] += 1
        return name if self._names[name] == 1 else f"{name}.{self._names[name]}"

    def open_broker(self, settings: dict[str, str]) -> Broker:
        """Start a second Kafka with these settings; it is closed with the bench. Raises BrokerError."""
        broker = Broker(settings=settings)
        self._open.callback(broker.close)
        return broker.start()

    def open_postgres(self) -> Postgres:
        """Start a PostgreSQL with an empty database; it is closed with the bench. Raises PostgresError."""
        postgres = Postgres()
        self._open.callback(postgres.close)
        return postgres.start()

    def close(self) -> None:
        """Stop the queries, then all processes of the bench. Idempotent."""
        atexit.unregister(self.close)
        try:
            self._stop_spark()
        finally:
            self._open.close()

    def give_way(self) -> None:
        """Close this bench for a newer one. If its Spark still ran, its run was interrupted: also end the JVM."""
        interrupted = self._spark is not None
        try:
            self.close()
        finally:
            if interrupted:
                from labs.equipment.spark import end_jvm

                end_jvm()

    def _start_spark(self) -> None:
        from labs.equipment.spark import spark_session

        self._spark = spark_session()

    def _restorer(self) -> Callable[[], None]:
        """Return a function that restores network and broker to their present state, after an interrupted cell."""
        running = self.broker.running

        def restore() -> None:
            if self.proxy is not None:
                self.proxy.disarm()
                self.proxy.heal()
            if running and not self.broker.running:
                self.broker.start()
                print("The cell had stopped the broker; it is started again.")

        return restore

    def _stop_spark(self) -> None:
        session = self._spark
        if session is None:
            return
        with contextlib.suppress(Exception):  # a session that the lesson stopped itself has no streams
            for query in session.streams.active:
                query.stop()
        session.stop()
        self._spark = None  # only now, so that `give_way` notices an interrupt before


_on_the_bench: list[LessonBench] = []


def open_bench(spark: bool = True, proxy: bool = False) -> LessonBench:
    """Open the bench of a lesson; first close the one that an earlier run in this kernel left open."""
    while _on_the_bench:
        _on_the_bench.pop().give_way()
    bench = LessonBench(spark=spark, proxy=proxy)
    _on_the_bench.append(bench)
    return bench


Given = TypeVar("Given")
Step = Callable[[Given], object]


class Story(Generic[Given]):
    """Steps that build on one another. `begin()` prepares what they need, and returns the argument for each step.

    `given` is what `begin` returned last.
    """

    given: Given

    def __init__(self, begin: Callable[[], Given]):
        self._begin, self._steps = begin, dict[str, Step[Given]]()
        self._taken: int | None = None  # number of steps; None: it has not begun, or a step failed

    def __call__(self, step: Step[Given]) -> Step[Given]:
        """Take the step, after repeating those before it if that is necessary. Their output is not shown."""
        self._steps[step.__name__] = step  # a step of a known name keeps its place
        before = list(self._steps).index(step.__name__)
        taken, self._taken = self._taken, None
        if taken != before:
            self.given = self._begin()
            for earlier in list(self._steps.values())[:before]:
                with contextlib.redirect_stdout(io.StringIO()):
                    earlier(self.given)
        step(self.given)
        self._taken = before + 1
        return step
