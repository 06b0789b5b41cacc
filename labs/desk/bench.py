"""The bench of a lesson: a broker and Spark, and if the lesson needs them a proxy before the broker and a PostgreSQL.

    bench = open_bench(proxy=True)
    ... bench.servers, bench.spark, bench.proxy ...
    bench.close()

Guarantee: a lesson that was interrupted, or left in the middle, can be run again from its top: the bench that an
earlier run left open is closed first. Whatever happens to the kernel, broker, JVM and PostgreSQL end with it.
"""

from __future__ import annotations

import atexit
import contextlib
from typing import TYPE_CHECKING

from labs.equipment.apart import kill_all_apart
from labs.equipment.broker import AnyBroker, Broker, nothing, open_broker
from labs.equipment.postgres import Postgres
from labs.exercises.checker.interpreter import end_idle
from labs.faults.proxy import Proxy, proxied_broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class LessonBench:
    """What stands on the bench. `servers` is the address for Kafka clients, through the proxy where there is one."""

    broker: AnyBroker
    proxy: Proxy | None

    def __init__(self, spark: bool = True, proxy: bool = False):
        self._open = contextlib.ExitStack()
        self._open.callback(end_idle)
        self._open.callback(kill_all_apart)
        self._spark: SparkSession | None = None
        try:
            meanwhile = self._start_spark if spark else nothing
            if proxy:
                self.broker, self.proxy = self._open.enter_context(proxied_broker(meanwhile))
            else:
                self.broker, self.proxy = open_broker(meanwhile), None
                self._open.callback(self.broker.close)
        except BaseException:
            self.close()
            raise
        self.servers: str = self.broker.bootstrap_servers
        atexit.register(self.close)

    @property
    def spark(self) -> SparkSession:
        """The session. Raises RuntimeError where the bench was opened without."""
        if self._spark is None:
            raise RuntimeError("this bench has no Spark: it was opened with open_bench(spark=False)")
        return self._spark

    def open_broker(self, settings: dict[str, str]) -> Broker:
        """Start a second Kafka, with settings of its own, which is closed with the bench. Raises BrokerError."""
        broker = Broker(settings=settings)
        self._open.callback(broker.close)
        return broker.start()

    def open_postgres(self) -> Postgres:
        """Start a PostgreSQL with an empty database, which is closed with the bench. Raises PostgresError."""
        postgres = Postgres()
        self._open.callback(postgres.close)
        return postgres.start()

    def close(self) -> None:
        """Stop all that stands on the bench, queries first, and the processes beside it. Twice is once."""
        atexit.unregister(self.close)
        try:
            self._stop_spark()
        finally:
            self._open.close()

    def give_way(self) -> None:
        """Close what an earlier run left open. A JVM that was interrupted at anything is not used again."""
        interrupted = self._spark is not None
        self.close()
        if interrupted:
            from labs.equipment.spark import end_jvm

            end_jvm()

    def _start_spark(self) -> None:
        from labs.equipment.spark import spark_session

        self._spark = spark_session()

    def _stop_spark(self) -> None:
        session, self._spark = self._spark, None
        if session is None:
            return
        with contextlib.suppress(Exception):  # a session that the lesson stopped itself has no streams to ask for
            for query in session.streams.active:
                query.stop()
        session.stop()


_on_the_bench: list[LessonBench] = []


def open_bench(spark: bool = True, proxy: bool = False) -> LessonBench:
    """Open the bench of a lesson, and close the one that an earlier run in this kernel left open."""
    while _on_the_bench:
        _on_the_bench.pop().give_way()
    bench = LessonBench(spark=spark, proxy=proxy)
    _on_the_bench.append(bench)
    return bench
