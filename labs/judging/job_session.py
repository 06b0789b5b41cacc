"""Runs a job under strikes: an `EngineSession` with the records of any workload, and with other faults besides kills.

A job that ends by itself is started again, as a supervisor would do: a job with a fenced producer, for example, must
end. If it has ended three times in a row without a new result, the run stops. The run also stops if a job hangs: if it
writes no new result for `patience` seconds (`Standstill`). The verdict is then unknown, or invalid if an anomaly was
found.

The strike `terminate` asks a job to end, so that ending does not count: `_terminate` starts the job again itself.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from kafka.errors import KafkaError as KafkaPythonError

from labs.engines.engine import Work
from labs.equipment.plain_text import one_line
from labs.equipment.topics import admin, end_offsets
from labs.evidence.auditor.anomalies import Audit
from labs.evidence.readers.results import UNTIL_DECIDED, Tail, position, read_to_end, wait_until_decided
from labs.faults.kafka_messages import Request
from labs.faults.proxy import Proxy
from labs.judging.engine_session import SOURCE_CLIENT, TO_SEE, EngineSession, EngineStopped, Standstill
from labs.judging.judged_job import GRACE, Job, RunningJob
from labs.judging.strikes import ANSWER, COMMIT, STEADY_SECONDS, WRITE, Aim, Strike, halves, slices
from labs.judging.workloads import Input, Output, Reading, Workload

PAUSE, SLOW, LATE, AWAY = 5.0, 3.0, 3.0, 16.0  # seconds
TO_BE_HELD = 10.0  # seconds to wait for a request that is to be held back
TO_END = 3.0  # seconds within which a job that has transactions ends one
TO_READ = 1.0  # seconds until the readers have what a job wrote before its end
TO_FOLLOW = 5.0  # seconds without another result, after those of the closing records
TO_FLUSH = 120.0  # seconds for Kafka to take the input
ENDINGS = 3  # in a row, without a new result
LONGEST_READ = 0.5  # seconds
MOST_RECORDS = 100_000  # that a job may write beyond ten times the expected ones
MOST_BYTES = 500_000_000  # that a job may write beyond ten times its input: the judge keeps them all in memory
SAMPLE_EVERY = 0.25  # seconds
TELL_EVERY = 30.0  # seconds without another line of progress
Say = Callable[[str], object]


@dataclass(frozen=True)
class JobRun:
    """The outcome of one run of one command.

    `recoveries` are the seconds from each kill or termination to the next new committed result. `first_result` is the
    time in seconds from the first start to the first committed result. `samples` are (seconds since the first start,
    committed results so far). `remarks` are lines about what else happened in the run.
    """

    command: Sequence[str]
    strikes: Sequence[Strike]
    seconds: float
    audit: Audit
    remarks: Sequence[str] = ()
    samples: Sequence[tuple[float, int]] = field(default=(), repr=False)
    recoveries: Sequence[float] = ()
    first_result: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "command": list(self.command),
            "seconds": round(self.seconds, 1),
            "strikes": [strike.as_dict() for strike in self.strikes],
            "remarks": list(self.remarks),
            "audit": self.audit.as_dict(),
        }


@dataclass(frozen=True)
class Limits:
    """How much a job may write, by the number of expected results and the bytes of the input."""

    due: int
    given: int

    @classmethod
    def of(cls, workload: Workload) -> Limits:
        return cls(len(workload.due), sum(len(record.value) for record in workload.inputs))

    def exceeded(self, records: int, size: int) -> str:
        """Return in words that a job wrote far too many records, or far too many bytes; empty if it did not."""
        if records > 10 * self.due + MOST_RECORDS:
            return f"wrote more than {records:,} records, where {self.due:,} are expected"
        if size > 10 * self.given + MOST_BYTES:
            return f"wrote more than {size >> 20:,} MB, where the input has {self.given >> 20:,} MB"
        return ""


class OutputTail(Tail):
    """Keeps every record that a reader of this isolation level has seen, and the names of the results."""

    def __init__(self, servers: str, topic: str, isolation_level: str, workload: Workload):
        super().__init__(servers, topic, isolation_level)
        self.outputs: list[Output] = []
        self.latest = -1  # the highest index of an input record of which a result was seen
        self.bytes = 0  # of all values
        self._workload = workload

    def read(self, seconds: float) -> None:
        """Read the new records, but stop after LONGEST_READ: a job may write without end, faster than this reads."""
        message, until = self._consumer.poll(seconds), time.monotonic() + LONGEST_READ
        while message is not None:
            if message.error() is None:
                self.distinct.add(self.result_of(message))
            message = self._consumer.poll(0) if time.monotonic() < until else None

    def result_of(self, message: Message) -> Any:
        """Keep the record, and return the name of its result; None if it is no expected result."""
        self.outputs.append(output_of(message))
        self.bytes += len(message.value() or b"")
        name = self._workload.result_of(self.outputs[-1])
        self.latest = max(self.latest, self._workload.due.get(name, -1))
        return name


def output_of(message: Message) -> Output:
    return Output(*position(message), message.value())


@dataclass
class Endings:
    """Counts how often a job has ended by itself, in each way of ending, and keeps the first message of each way."""

    name: str
    _in_vain: int = 0
    _results: int = 0  # at the last ending
    _told: dict[str, tuple[int, str]] = field(default_factory=dict)  # ending -> times, the first time's message

    def note(self, ending: str, message: str, results: int) -> None:
        """Count one ending. Raises EngineStopped if it is the third in a row without a new result."""
        self._in_vain = 0 if results > self._results else self._in_vain + 1
        self._results = results
        if self._in_vain >= ENDINGS:
            raise EngineStopped(f"{self.name} {ending}, {ENDINGS} times without a new result: {message}")
        times, first = self._told.get(ending, (0, message))
        self._told[ending] = times + 1, first

    @property
    def number(self) -> int:
        """How often it has ended."""
        return sum(times for times, _ in self._told.values())

    def remarks(self) -> list[str]:
        """Return one line for each way in which it ended."""
        return [
            f"it {ending} and was started again{f', {times} times; the first time' if times > 1 else ''}: {message}"
            for ending, (times, message) in self._told.items()
        ]


class JobSession(EngineSession):
    """A job at work on its two topics."""

    engine: Job
    tail: OutputTail
    watcher: OutputTail  # type: ignore[assignment]  # read_committed, and in this thread

    def __init__(
        self,
        job: Job,
        work: Work,
        workload: Workload,
        proxy: Proxy | None,
        patience: float,
        say: Say = lambda line: None,
    ):
        self.workload, self.patience = workload, patience
        self._say, self._told = say, 0.0  # when the last line of progress was
        self.strikes: list[Strike] = []
        self.samples: list[tuple[float, int]] = []
        self._limits = Limits.of(workload)
        self.sent = 0  # records of the judge in the source topic, and the ends of its transactions
        self._refusal = ""  # the first error of a record that Kafka did not take
        self._proxy, self.endings = proxy, Endings(job.name)
        super().__init__(job, work, partitions=workload.partitions)

    def watch(self) -> None:
        """Read the results from the beginning of the topic on, committed and uncommitted ones."""
        servers, sink = self.work.bootstrap_servers, self.work.sink_topic
        self.tail = OutputTail(servers, sink, "read_uncommitted", self.workload)
        self.watcher = OutputTail(servers, sink, "read_committed", self.workload)
        self._watched = True

    def close(self) -> None:
        """Stop the job and the readers."""
        super().close()
        self.watcher.close()

    def look(self) -> None:
        """Start the job again if it has ended by itself.

        Raises EngineStopped if it ends again and again without a new result, if it has written far too many records, or
        if Kafka has refused a record of the input.
        """
        assert self.process, "started"
        self._check_input()
        if flood := self._limits.exceeded(len(self.tail.outputs), self.tail.bytes):
            raise EngineStopped(f"{self.engine.name} {flood}")
        if self.process.running:
            return
        ending, message = self.process.ending, self.process.last_line()
        self.idle(TO_READ)
        self.endings.note(ending, message, len(self.watcher.distinct))
        self.process.close()
        self.start()

    def _catch_up(self) -> None:
        self.idle(TO_SEE)  # the watcher reads in this thread

    @property
    def has_all(self) -> bool:
        """Whether all expected results are committed."""
        return self.workload.due.keys() <= self.watcher.distinct

    def send_aborted(self) -> None:
        """Send records in a transaction, and abort it: only a job that reads uncommitted records sees them."""
        settings = {"transactional.id": f"{self.work.name}-aborted", "client.id": SOURCE_CLIENT, "log_level": 0}
        producer = Producer({"bootstrap.servers": self.work.bootstrap_servers, **settings})
        producer.init_transactions(TO_FLUSH)
        producer.begin_transaction()
        for record in self.workload.aborted:
            producer.produce(self.work.source_topic, record.value, record.key, record.partition)
        producer.flush(TO_FLUSH)
        producer.abort_transaction(TO_FLUSH)
        self.sent += len(self.workload.aborted) + len({record.partition for record in self.workload.aborted})

    def strike(self, aim: Aim) -> None:
        """Wait for the planned moment, strike, and note what happened to the job. Raises EngineStopped.

        Each kind of strike is a method with its name: `_late_commit` for "late-commit". It returns what happened, in
        words, and whether it struck as planned.
        """
        blow = getattr(self, f"_{aim.kind.replace('-', '_')}")
        self._wait_for(aim)
        began = self.now
        if self.process and not self.process.running:  # the next `look` counts this ending, and starts the job again
            met, hit = f"no {aim.kind}: it {self.process.ending} just before", False
        else:
            met, hit = blow(aim)
        self.strikes.append(Strike(aim.kind, began, met, missed=not hit))

    def finish(self, rest: Sequence[Input]) -> None:
        """Send the rest and the closing records, and wait for their results. Raises EngineStopped.

        Other records may follow those results: the job may work on several records at a time, or write one twice. Wait
        for them until none has come for TO_FOLLOW seconds, but for new results no longer than for any others.
        """
        self.send(rest)
        self.flush()
        self.send(self.workload.closing)
        self.flush()
        self.wait_for_these(self.workload.last)
        newest = self.now  # when the last new result came
        until = newest + TO_FOLLOW
        try:
            while self.now < min(until, newest + self.patience):
                new, wrote, ended = len(self.watcher.distinct), len(self.watcher.outputs), self.endings.number
                self.tick()
                if len(self.watcher.distinct) > new:
                    newest = self.now
                if len(self.watcher.outputs) > wrote:
                    until = max(until, self.now + TO_FOLLOW)
                if self.endings.number > ended and not self.has_all:  # started again, it may go on where it ended
                    until = self.now + self.patience
        except EngineStopped:
            if not self.has_all:  # else it had nothing left to do
                raise

    def flush(self) -> None:
        """Wait until Kafka has acknowledged what was sent. Raises EngineStopped if not: it is not the job's fault."""
        if left := self._producer.flush(TO_FLUSH):
            raise EngineStopped(f"Kafka did not take {left:,} records of the input within {TO_FLUSH:g} s")
        self._check_input()

    def _check_input(self) -> None:
        if self._refusal:
            raise EngineStopped(f"Kafka did not take a record of the input: {self._refusal}")

    def _wait_for(self, aim: Aim) -> None:
        if not aim.before:
            standstill = Standstill(f"{self.engine.name} wrote nothing", self.patience)
            while self.tail.latest < aim.moment:
                standstill.look(len(self.tail.distinct), f", {len(self.tail.distinct):,} results so far")
                self.tick()
        self.idle(aim.delay)

    def _kill(self, aim: Aim) -> tuple[str, bool]:
        struck = True
        if aim.before == ANSWER:
            struck = self._drop_an_answer(TO_BE_HELD, Request.PRODUCE)
        elif aim.before == COMMIT:  # EndTxn first: a job with transactions may store its progress only after it
            struck = self._drop_an_answer(TO_END, Request.END_TXN)
            struck = struck or self._drop_an_answer(TO_BE_HELD, Request.END_TXN, Request.OFFSET_COMMIT)
        elif aim.before == WRITE:
            struck = bool(self._hold(Request.PRODUCE, cut_client=False))
        waited = TO_BE_HELD + (TO_END if aim.before == COMMIT else 0)
        self.kill()
        self.disarm()
        self.start()
        when = f"before {aim.before}" if aim.before else "at the first sight of new results"
        sought = "commit" if aim.before == COMMIT else "write"
        told = f"killed {when}" if struck else f"killed after {waited:g} s without a {sought} through the proxy"
        return f"{told}; {self._committed:,} results were committed", struck

    def _terminate(self, aim: Aim) -> tuple[str, bool]:
        job = self.process
        assert isinstance(job, RunningJob), "an engine is only killed"
        asked = self.now
        job.signal(signal.SIGTERM)
        while (left := job.running or job.has_group) and self.now - asked < GRACE:
            self._go_on()  # not `tick`: its `look` would count the ending
        if left:
            met = f"it did not end within {GRACE:g} s and was killed"
        else:
            met = f"it {job.ending} after {self.now - asked:.1f} s"
        self.kill()
        self.start()
        return f"on SIGTERM {met}; {self._committed:,} results were committed", True

    def _pause(self, aim: Aim) -> tuple[str, bool]:
        assert isinstance(self.process, RunningJob), "an engine is only killed"
        self.process.pause()
        self.idle(PAUSE)
        self.process.resume()
        return f"frozen for {PAUSE:g} s", True

    def _cut(self, aim: Aim) -> tuple[str, bool]:
        assert self._proxy, "drawn only with a proxy"
        self._proxy.cut()
        return "all connections were cut", True

    def _slow(self, aim: Aim) -> tuple[str, bool]:
        assert self._proxy, "drawn only with a proxy"
        fault = self._proxy.delay_next_response(Request.PRODUCE, SLOW, not_client_id=SOURCE_CLIENT)
        struck = self._wait_until(fault.struck.is_set)
        self.disarm()
        missed = f"no write came through the proxy within {TO_BE_HELD:g} s"
        return f"an answer came {SLOW:g} s late" if struck else missed, struck

    def _late_commit(self, aim: Aim) -> tuple[str, bool]:
        assert self._proxy, "drawn only with a proxy"
        held = self._hold(Request.END_TXN, cut_client=True)
        if held:
            self.idle(LATE)
            try:
                answer = held.deliver().error or "no error"
            except OSError as error:
                answer = f"none ({error})"
            return f"the end of a transaction came {LATE:g} s late; Kafka's answer: {answer}", True
        self.disarm()
        return f"it ended no transaction within {TO_BE_HELD:g} s, so no commit was late", False

    def _outage(self, aim: Aim) -> tuple[str, bool]:
        held = self._hold(Request.END_TXN, cut_client=False)
        self.kill()
        self.disarm()
        self.idle(AWAY)
        self.start()
        what = "killed while its commit was held back" if held else "killed; it ended no transaction"
        return f"{what}; started again after {AWAY:g} s", held is not None

    def _drop_an_answer(self, seconds: float, *kinds: Request) -> bool:
        """Drop the answer to the job's next request of each kind; return whether there was any within `seconds`."""
        assert self._proxy, "drawn only with a proxy"
        lost = [self._proxy.drop_next_response(kind, cut=False, not_client_id=SOURCE_CLIENT) for kind in kinds]
        struck = self._wait_until(lambda: any(each.struck.is_set() for each in lost), seconds)
        self.disarm()
        self.idle(TO_SEE)
        return struck

    def _hold(self, kind: Request, cut_client: bool) -> Any:
        """Hold back the job's next request of a kind, and return it; None if there is none within TO_BE_HELD."""
        assert self._proxy, "drawn only with a proxy"
        held = self._proxy.hold_next_request(kind, cut_client=cut_client, not_client_id=SOURCE_CLIENT)
        return held if self._wait_until(held.struck.is_set) else None

    def _wait_until(self, reached: Callable[[], bool], seconds: float = TO_BE_HELD) -> bool:
        """Wait until `reached()` is true, for `seconds` at most, and return its value.

        Meanwhile a job that ends by itself is started again.
        """
        began = self.now
        while not reached() and self.now - began < seconds:
            self.tick()
        return reached()

    def disarm(self) -> None:
        """Remove the faults that have not struck."""
        if self._proxy:
            self._proxy.disarm()

    def _go_on(self) -> None:
        self.watcher.read(0)  # first, so that `super` also counts the last results of the run as a recovery
        super()._go_on()
        if not self.samples or self.now - self.samples[-1][0] > SAMPLE_EVERY:
            self.sample()

    def sample(self) -> None:
        """Note how many results are committed by now, and print it after TELL_EVERY seconds without a line."""
        committed = len(self.watcher.distinct - {None})
        self.samples.append((self.now, committed))
        if self.now - self._told > TELL_EVERY:
            self.tell(f"after {self.now:.0f} s: {committed:,} of {len(self.workload.due):,} results are committed")

    def tell(self, line: str) -> None:
        """Say a line of progress."""
        self._told = self.now
        self._say(line)

    def _send_one(self) -> None:
        record = self._unsent.pop()
        self.sent += 1
        place = self.work.source_topic, record.value, record.key, record.partition
        try:
            self._producer.produce(*place, on_delivery=self._delivered)
        except BufferError:
            self.flush()
            self._producer.produce(*place, on_delivery=self._delivered)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None and not self._refusal:
            self._refusal = error.str()


def run_job(
    job: Job,
    work: Work,
    workload: Workload,
    aims: Sequence[Aim],
    proxy: Proxy | None,
    patience: float,
    say: Say = lambda line: None,
    rate: float | None = None,
) -> JobRun:
    """Let the job work on all of the input, strike as planned, and judge. Both topics must not exist yet.

    `rate` is the number of records per second that are sent while a strike comes; None: the half of a
    slice is sent within STEADY_SECONDS. If the run stops early, the audit's reason says why.
    """
    before = _topics(work)
    session = JobSession(job, work, workload, proxy, patience, say)
    parts, error = slices(workload.inputs, len(aims)), None
    try:
        session.send_aborted()
        session.start()
        for number, (aim, part) in enumerate(zip(aims, parts, strict=False), start=1):
            at_once, steady = halves(part)
            session.send(at_once)
            session.wait_for_news()
            session.send(steady, len(steady) / rate if rate else STEADY_SECONDS)
            session.strike(aim)
            session.tell(f"strike {number} of {len(aims)}, {aim.kind}: {session.strikes[-1].met}")
        session.finish(parts[-1])
    except (EngineStopped, KafkaException) as stopped:  # the producer of the input raises the latter
        error = str(stopped)
    finally:
        seconds = session.now
        session.close()
        session.disarm()
    session.sample()
    audit = workload.audit(read(work, workload, session.watcher.outputs, error))
    for remark in session.endings.remarks():
        job.remark(remark)
    with contextlib.suppress(OSError, KafkaException, KafkaPythonError):  # what was read counts all the same
        for remark in filter(None, (_foreign_records(session), _other_topics(work, _topics(work) - before))):
            job.remark(remark)
    return JobRun(
        job.command, session.strikes, seconds, audit, job.remarks, session.samples, session.recoveries,
        session.first_result,
    )  # fmt: skip


def read(work: Work, workload: Workload, watched: Sequence[Output], error: str | None) -> Reading:
    """Wait until all transactions have ended, and read the sink topic from its beginning to its end.

    If that fails, the reading has the `watched` records and an `error`. A flood is not read to its end.
    """
    outputs, size, limits = list[Output](), 0, Limits.of(workload)
    try:
        decided = wait_until_decided(work.bootstrap_servers, work.sink_topic, UNTIL_DECIDED)
        for record in read_to_end(work.bootstrap_servers, work.sink_topic, "read_committed"):
            outputs.append(output_of(record))
            size += len(record.value() or b"")
            if flood := limits.exceeded(len(outputs), size):
                return Reading(outputs, watched, decided, error or f"it {flood}; the rest was not read")
        return Reading(outputs, watched, decided, error)
    except (KafkaException, TimeoutError) as failed:
        return Reading(watched, None, {}, error or f"the sink topic could not be read: {failed}")


def _foreign_records(session: JobSession) -> str:
    """Return a remark about records in the source topic that the judge did not send; empty if there are none."""
    more = sum(end_offsets(session.work.bootstrap_servers, session.work.source_topic).values()) - session.sent
    return f"it wrote {more:,} records into its source topic" if more > 0 else ""


def _topics(work: Work) -> set[str]:
    with admin(work.bootstrap_servers) as client:
        return {name for name in map(str, client.list_topics()) if not name.startswith("__")}


def _other_topics(work: Work, new: set[str]) -> str:
    """Return a remark about records in topics that did not exist before; empty if there are none."""
    others = sorted(new - {work.source_topic, work.sink_topic})
    written = [name for name in others if any(end_offsets(work.bootstrap_servers, name).values())]
    return f"it wrote into new topics, which are not judged: {one_line(', '.join(written))}" if written else ""
