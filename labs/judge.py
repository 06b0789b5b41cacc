"""Is this job exactly once? The judge for any program that reads one Kafka topic and writes another.

    from labs.judge import judge

    def test_my_job_is_exactly_once():
        found = judge(["node", "copy.js"], workload="copy", kills=3, control=["node", "copy_at_least_once.js"])
        assert found.valid, found

The judge starts a Kafka behind a proxy (or uses a Kafka of yours), and starts the job with its topics in environment
variables. It sends records to the source topic. Meanwhile it kills the job or injects other faults: the strikes. It
starts the job again after each kill, and reads what the job wrote. docs/judge.md says what the job must do.
Limitations: a valid verdict is about these strikes and this input only. It is evidence, not a proof.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Sequence

from labs.engines.engine import Work
from labs.equipment.broker import require_asserts
from labs.equipment.child_process import temporary_directory
from labs.equipment.topics import KafkaUnreachable, TopicRefused, remove_topics
from labs.faults.proxy import Proxy, proxied_broker
from labs.judging.job_session import JobRun, run_job
from labs.judging.judged_job import Job
from labs.judging.judgement import Judgement
from labs.judging.strikes import KINDS, PATIENCE, check_rate, draw, kinds_of
from labs.judging.workloads import KILLS, workload_called


def judge(
    command: Sequence[str],
    *,
    workload: str = "copy",
    kills: int | None = None,
    faults: Sequence[str] = ("kill",),
    seed: int = 7,
    control: Sequence[str] | None = None,
    records: int | None = None,
    partitions: int | None = None,
    keys: int | None = None,
    rate: int | None = None,
    size: int | None = None,
    nodes: int = 1,
    bootstrap_servers: str | None = None,
    patience: float = PATIENCE,
    say: Callable[[str], object] = lambda line: None,
) -> Judgement:
    """Run a job under strikes, then its control under the same strikes, and return the judgement of both.

    command            the job, as a list of words; it runs in this process's working directory
    workload           "copy", "count" or "transfer"
    kills              how often to kill; None means 8 times for "transfer", and 4 times for the others
    faults             kinds of strikes: "kill" comes `kills` times, each other kind once
    seed               decides the input and the strikes
    control            a variant of the job that is only at least once; the strikes must cause duplicates in it
    records            number of input records; None means the default, here and in the next four lines
    partitions         of both topics
    keys               different keys of the records in each partition
    rate               records per second, in the part of the input that is sent while a strike comes
    size               largest number of filler bytes in a record of the workload "copy"
    nodes              brokers of the Kafka that the judge starts
    bootstrap_servers  a Kafka of your own: the judge creates two topics in it, and can only kill, terminate and pause
    patience           seconds without a new result, after which the run stops
    say                is called with each line of progress

    Raises ValueError for wrong arguments, such as a program that does not exist. Errors of Kafka are passed on.
    """
    require_asserts()
    if unknown := [each for each in faults if each not in KINDS]:
        raise ValueError(f"no fault is called {unknown[0]!r}; there are {', '.join(KINDS)}")
    numbers = {"records": records, "partitions": partitions, "keys": keys, "rate": rate, "size": size}
    for name, number in numbers.items():
        if number is not None and number < 1:
            raise ValueError(f"{name} is {number}; expected 1 or more")
    if bootstrap_servers and nodes != 1:
        raise ValueError("nodes are those of the lab's own Kafka; omit them with bootstrap_servers")
    kills = KILLS.get(workload, 0) if kills is None else kills
    work = workload_called(workload, records, partitions, seed, len(kinds_of(kills, faults)), keys, size)
    aims = draw(work.due, work.inputs, kills, faults, seed, proxied=bootstrap_servers is None)
    if rate:
        check_rate(work.inputs, len(aims), rate)
    jobs = [Job(command)] + ([Job(control, "the control")] if control is not None else [])
    runs: list[JobRun] = []
    with temporary_directory("labs-judge-") as directory, _kafka(bootstrap_servers, nodes) as (servers, proxy):
        for job in jobs:
            say(f"{job.name}: {len(work.inputs):,} records, {len(aims)} strikes")
            name = f"judge-{uuid.uuid4().hex[:8]}"
            order = Work(servers, f"{name}-source", f"{name}-sink", directory / name, name)
            try:
                runs.append(run_job(job, order, work, aims, proxy, patience, say, rate))
            finally:
                if bootstrap_servers:
                    _remove_topics(job, order, say)
    return Judgement(workload, seed, faults, *runs)


def _remove_topics(job: Job, order: Work, say: Callable[[str], object]) -> None:
    """Remove the topics of a run. If that fails, only note a remark, so that the judgement is not lost."""
    try:
        remove_topics(order.bootstrap_servers, order.source_topic, order.sink_topic)
    except (KafkaUnreachable, TopicRefused) as error:
        job.remark(f"the judge's topics are left: {error}")
        say(job.remarks[-1])


@contextlib.contextmanager
def _kafka(bootstrap_servers: str | None, nodes: int) -> Iterator[tuple[str, Proxy | None]]:
    """Yield the address of a Kafka and its proxy: a new Kafka, or the one at `bootstrap_servers`, without a proxy."""
    if bootstrap_servers:
        yield bootstrap_servers, None
    else:
        # The default of Kafka: a job that writes into an unknown topic creates it. A remark then names the topic.
        with proxied_broker(nodes=nodes, settings={"auto.create.topics.enable": "true"}) as (_, proxy):
            yield proxy.bootstrap_servers, proxy
