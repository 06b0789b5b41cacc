"""The workloads of the judge: the input, the expected results, and a checker that does not use Kafka.

A workload names each result that it expects, such as (partition 0, record 17). `result_of` finds the name in a record
that the job wrote. So all checkers share one rule: each name must be there exactly once.

Guarantee: "valid" means that each expected result was read exactly once, and that nothing else was read. Limitations:
the job's records have no headers for batch and attempt. So ABORTED_READ cannot be judged, and the checker knows only
what a read_committed reader saw.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, NamedTuple, Protocol

from labs.equipment.plain_text import one_line
from labs.evidence.auditor.anomalies import Anomaly, AnomalyTally, Audit, Fate, Verdict
from labs.evidence.auditor.audit import audit, judge_sentinels
from labs.evidence.auditor.expected import count_by_window
from labs.evidence.auditor.observed import Key, Result
from labs.evidence.auditor.observed import Reading as Results
from labs.pipeline.log.generate import Traffic
from labs.pipeline.records import (
    CLOSING_DELAY_MS,
    CLOSING_IP,
    LATENESS_MS,
    WINDOW_MS,
    parse_result_value,
    source_value,
    without_repeated_keys,
)

Name = tuple[Any, ...]  # of an expected result
SHOWN = 60  # characters of a record that a sentence shows

# What these mean without the micro-batches of the lab's own pipeline.
MEANINGS = {
    Anomaly.DUPLICATE: "A result is there more than once.",
    Anomaly.TORN_BATCH: "Only one of the two postings of a transfer is there: money was made or lost.",
    Anomaly.NONMONOTONIC: "Two records of one source partition are in the wrong order in a sink partition.",
    Anomaly.PHANTOM: "The sink topic holds a record that is no expected result.",
}


class Input(NamedTuple):
    """A record for the source topic."""

    partition: int
    key: bytes
    value: bytes


class Output(NamedTuple):
    """A record that was read from the sink topic."""

    partition: int
    offset: int
    value: bytes | None

    def __str__(self) -> str:
        text = "no value" if self.value is None else one_line(self.value[:SHOWN].decode(errors="replace"))
        return f"partition {self.partition}, offset {self.offset}: {text}"


@dataclass(frozen=True)
class Reading:
    """The records that could be read when the job was done.

    outputs   every record that a read_committed reader found at the end
    watched   every record that a read_committed reader saw during the run
    decided   partition -> whether all transactions in it had ended by then
    error     why the run stopped before its end; missing results are then not called lost
    """

    outputs: Sequence[Output]
    watched: Sequence[Output] | None = None
    decided: Mapping[int, bool] = field(default_factory=dict)
    error: str | None = None


class Workload(Protocol):
    """Records to send, and the results of a correct job."""

    name: str
    partitions: int  # of both topics
    inputs: list[Input]  # in the order of sending
    closing: list[Input]  # sent after them: one record for each partition, which marks the end of the input
    aborted: list[Input]  # sent before them, in a transaction that is aborted: nothing may come out of it
    due: dict[Any, int]  # name of a result -> index of the input that completes it; then come the closing records
    last: set[Any]  # the results of the closing records: when they are committed, the job is done

    def result_of(self, output: Output) -> Name | None:
        """Return the name of the result in a record; None if the record is no expected result."""

    def audit(self, reading: Reading) -> Audit:
        """Judge what was read."""


def audit_names(
    expected: Iterable[Name],
    reading: Reading,
    result_of: Callable[[Output], Name | None],
    describe: Callable[[Any], str],
    judge_more: Callable[[dict[Any, list[Output]], AnomalyTally], object] = lambda found, tally: None,
    judged_more: Iterable[Anomaly] = (),
    note: str = "",
) -> Audit:
    """Judge a workload in which each result must be there exactly once.

    `describe` names a result in a sentence. `judge_more` gets the records of each result and the tally; it reports
    further anomalies, of the kinds in `judged_more`. `note` is a sentence for the audit's reason.
    """
    names, tally, complete = set(expected), AnomalyTally(), reading.error is None
    found: dict[Any, list[Output]] = {}
    for output in reading.outputs:
        name = result_of(output)
        if name is None:
            tally.add(Anomaly.PHANTOM, "{}", output)
        else:
            found.setdefault(name, []).append(output)
    for name, copies in found.items():
        if len(copies) > 1:
            tally.add(Anomaly.DUPLICATE, _copies_in_words, describe(name), copies, times=len(copies) - 1)
    missing = sorted(names - found.keys())
    for name in missing if complete else ():
        tally.add(Anomaly.LOST, "{} is not there", describe(name))
    judge_more(found, tally)
    judge_decided(reading, tally)
    judge_watched(reading, tally)
    delivered = len(found)
    reasons = [f"{reading.error}; {delivered:,} of {len(names):,} expected results were read"] if not complete else []
    reasons += [note] if note else []
    by_window: dict[Fate, Counter[int]] = {fate: Counter() for fate in Fate}  # a single "window": there is no time
    by_window[Fate.DELIVERED][0] = delivered
    by_window[Fate.DUPLICATED][0] = tally.counts[Anomaly.DUPLICATE]
    by_window[Fate.LOST][0] = tally.counts[Anomaly.LOST]
    judged = {Anomaly.DUPLICATE, Anomaly.PHANTOM, *judged_more, *_judged_by(reading)}
    return Audit(
        verdict=verdict_of(tally.counts, complete),
        expected=len(names),
        observed=len(reading.outputs),
        counts=tally.counts,
        examples=tally.examples,
        by_window=by_window,
        judged=frozenset(judged),
        reason="; ".join(reasons),
    )


def verdict_of(counts: Counter[Anomaly], complete: bool) -> Verdict:
    """Return the verdict: an error is invalid, also in an incomplete run, and an incomplete run is never valid."""
    if any(anomaly.is_error and times for anomaly, times in counts.items()):
        return Verdict.INVALID
    return Verdict.VALID if complete else Verdict.UNKNOWN


def judge_decided(reading: Reading, tally: AnomalyTally) -> None:
    """Report each partition whose end an open transaction hides."""
    if reading.error is None:
        judge_sentinels(reading.decided, tally)


def judge_watched(reading: Reading, tally: AnomalyTally) -> None:
    """Report each record that a read_committed reader saw, and that is not there any more."""
    gone = set(reading.watched or ()) - set(reading.outputs) if reading.error is None else set()
    for output in sorted(gone, key=lambda each: (each.partition, each.offset)):
        tally.add(Anomaly.READERS_DISAGREE, "a reader saw it, and a later reader did not: {}", output)


def with_phantoms(audit: Audit, outputs: Sequence[Output]) -> Audit:
    """Return the audit with these records added, which are no results."""
    tally = AnomalyTally(Counter(audit.counts), {anomaly: list(found) for anomaly, found in audit.examples.items()})
    for output in outputs:
        tally.add(Anomaly.PHANTOM, "{}", output)
    if not outputs:
        return audit
    return replace(
        audit,
        verdict=Verdict.INVALID,
        observed=audit.observed + len(outputs),
        counts=tally.counts,
        examples=tally.examples,
    )


def _judged_by(reading: Reading) -> set[Anomaly]:
    """Return the anomalies that only a reading to the end can show."""
    evidence = {
        Anomaly.LOST: True,
        Anomaly.HANGING_TRANSACTION: bool(reading.decided),
        Anomaly.READERS_DISAGREE: reading.watched is not None,
    }
    return {anomaly for anomaly, is_there in evidence.items() if is_there and reading.error is None}


def _copies_in_words(name: str, copies: Sequence[Output]) -> str:
    places = [f"partition {each.partition}, offset {each.offset}" for each in copies]
    more = f", and {len(places) - 3} more" if len(places) > 3 else ""
    return f"{name} is there {len(copies)} times: {'; '.join(places[:3])}{more}"


KEYS_OF_A_COPY = 10  # in each partition, unless the user says how many
LONGEST_FILLER = 200  # bytes, unless the user says how many: records have different sizes


class Copy:
    """`records` records, each of which the job writes unchanged, once, in the order of its source partition.

    They are spread evenly over the partitions, and the job may write a record to any partition. The order is judged
    within each partition of the sink topic. A result's name is (partition, number from 0). Each partition has `keys`
    keys, and a record has up to `size` bytes of filler. Limitations: keys, headers and timestamps are not judged, so a
    job may change them.
    """

    name = "copy"

    def __init__(
        self, records: int, partitions: int, seed: int, keys: int = KEYS_OF_A_COPY, size: int = LONGEST_FILLER
    ):
        random, self.partitions, self._keys = Random(seed), partitions, keys
        self._filler = "".join(random.choices("abcdefghij", k=size))
        self._numbers: dict[bytes, tuple[int, int]] = {}
        self.due: dict[tuple[int, int], int] = {}
        self._records = [self._record(index, random) for index in range(records)]
        self.inputs = list(self._records)
        self.closing = [self._close(partition) for partition in range(partitions)]
        self.aborted = [Input(each, b"aborted", f"{each},aborted".encode()) for each in range(partitions)]
        self.last = {self._numbers[record.value] for record in self.closing}

    def _record(self, index: int, random: Random) -> Input:
        number, partition = divmod(index, self.partitions)
        filler = self._filler[: random.randint(0, len(self._filler))]
        return self._known(partition, number, index, f"{partition},{number},{filler}")

    def _close(self, partition: int) -> Input:
        number = sum(record.partition == partition for record in self._records)
        return self._known(partition, number, len(self._records) + partition, f"{partition},{number},end")

    def _known(self, partition: int, number: int, index: int, text: str) -> Input:
        record = Input(partition, f"{partition}-{number % self._keys}".encode(), text.encode())
        self._numbers[record.value], self.due[partition, number] = (partition, number), index
        return record

    def result_of(self, output: Output) -> tuple[int, int] | None:
        """Return (source partition, number) of a record; None if its value is not one that was sent."""
        return self._numbers.get(output.value or b"")

    def audit(self, reading: Reading) -> Audit:
        """Judge what was read: each record once, and in order."""
        return audit_names(self.due, reading, self.result_of, _record_in_words, _judge_order, [Anomaly.NONMONOTONIC])


def _record_in_words(name: tuple[int, int]) -> str:
    return f"record {name[1]} of source partition {name[0]}"


def _judge_order(found: dict[Any, list[Output]], tally: AnomalyTally) -> None:
    """Report each record that comes after a later record of its source partition.

    Of several copies of a record, only the one with the lowest offset counts.
    """
    first = {name: min(copies, key=lambda each: each.offset) for name, copies in found.items()}
    latest: dict[tuple[int, int], int] = {}  # (partition of the sink, source partition) -> the highest number
    for (source, number), output in sorted(first.items(), key=lambda item: (item[1].partition, item[1].offset)):
        before = latest.get((output.partition, source), -1)
        if number < before:
            sentence = "{} is behind record {}: {}"
            tally.add(Anomaly.NONMONOTONIC, sentence, _record_in_words((source, number)), before, output)
        latest[output.partition, source] = max(before, number)


ABORTED_IP = "10.0.0.1"  # no record of the log has it
CLIENTS, RATE = 100, 200.0  # different IPs, and requests per second of event time


class Count:
    """`records` requests, to be counted per IP in windows of five seconds by the rules in `labs.pipeline.records`.

    A name is (window start in epoch millis, IP), and there are `keys` IPs. There is one source partition, so that the
    job needs no rule for the event time of several. Limitations: those of the auditor, and torn batches cannot be
    judged.
    """

    name = "count"
    partitions = 1

    def __init__(self, records: int, partitions: int, seed: int, keys: int = CLIENTS):
        if partitions != 1:
            raise ValueError(f"the workload count has 1 partition, not {partitions}: windows are closed by event time")
        traffic = Traffic(
            requests=records,
            seed=seed,
            rate=RATE,
            clients=keys,
            bursts=False,
            disorder_ms=LATENESS_MS,
        )
        self.log = log = list(traffic)
        self._expected = count_by_window(log)
        self.inputs = [Input(0, ip.encode(), source_value(time_ms, ip)) for time_ms, ip in log]
        self.due: dict[Key, int] = {}
        waiting, latest = sorted(self._expected, reverse=True), 0
        for index, (time_ms, _) in enumerate(log):
            latest = max(latest, time_ms)
            while waiting and waiting[-1][0] + WINDOW_MS + LATENESS_MS <= latest:
                self.due[waiting.pop()] = index
        self.due |= dict.fromkeys(waiting, len(log))
        self.closing = [Input(0, CLOSING_IP.encode(), source_value(latest + CLOSING_DELAY_MS, CLOSING_IP))]
        end = max((start for start, _ in self._expected), default=0)
        self.aborted = [Input(0, ABORTED_IP.encode(), source_value(log[0][0], ABORTED_IP))]
        self.last = {key for key in self._expected if key[0] == end}

    def result_of(self, output: Output) -> Key | None:
        """Return window start and IP of a result; None if nobody expects it."""
        result = _result(output)
        key = (result.window_start, result.ip) if result else None
        return key if key in self._expected else None

    def audit(self, reading: Reading) -> Audit:
        """Let the lab's auditor judge what was read."""
        # Records that the watcher had not read yet at the end are no disagreement of readers: count them as watched.
        later = None if reading.watched is None else _results({*reading.watched, *reading.outputs})
        results = Results(_results(reading.outputs), reading.decided)
        found = audit(self._expected, results, second_reader=later, reader_error=reading.error)
        return with_phantoms(found, [output for output in reading.outputs if not _result(output)])


def _results(outputs: Iterable[Output]) -> list[Result]:
    return [result for result in map(_result, outputs) if result]


def _result(output: Output) -> Result | None:
    try:
        return Result(*parse_result_value(output.value), partition=output.partition, offset=output.offset)
    except ValueError:
        return None


ACCOUNTS = ("alice", "bob")
LARGEST_AMOUNT = 100  # the amounts are 1 to so much; closing records transfer 0


class Transfer:
    """`records` transfers between two accounts; the job writes a posting to each of the two.

        {"id": 17, "from": "alice", "to": "bob", "amount": 5}      goes in, and out come
        {"id": 17, "account": "alice", "amount": -5}
        {"id": 17, "account": "bob", "amount": 5}

    The sum of all postings is 0 at all times. A job that writes only one of the two makes money or loses it. They may
    be in different partitions: only one transaction makes them visible together or not at all. A name is (id, account).
    `keys` is the number of different keys in each partition; None is a key of its own for each transfer.
    Limitations: the order is not judged, and neither is a reader's view in between, since Kafka does not promise a
    reader both postings at one moment.
    """

    name = "transfer"

    def __init__(self, records: int, partitions: int, seed: int, keys: int | None = None):
        random, self.partitions, self._keys = Random(seed), partitions, keys
        self._amounts: dict[tuple[int, str], int] = {}
        self.due: dict[tuple[int, str], int] = {}
        self.inputs = []
        for number in range(records):
            payer, payee = random.sample(ACCOUNTS, 2)
            self.inputs.append(self._transfer(number, payer, payee, random.randint(1, LARGEST_AMOUNT)))
        self.closing = [self._transfer(records + partition, *ACCOUNTS, 0) for partition in range(partitions)]
        self.aborted = [
            _order(records + partitions + each, each, *ACCOUNTS, LARGEST_AMOUNT) for each in range(partitions)
        ]
        self.last = {(number, account) for number, account in self.due if number >= records}

    def _transfer(self, number: int, payer: str, payee: str, amount: int) -> Input:
        for account, change in ((payer, -amount), (payee, amount)):
            self._amounts[number, account], self.due[number, account] = change, number
        order = _order(number, number % self.partitions, payer, payee, amount)
        if self._keys is None:
            return order
        return order._replace(key=str(number % (self._keys * self.partitions)).encode())

    def result_of(self, output: Output) -> tuple[int, str] | None:
        """Return (id, account) of a posting; None if the posting is not expected, or has another amount."""
        try:
            posting = json.loads((output.value or b"").decode(), object_pairs_hook=without_repeated_keys)
            number, account, amount = posting["id"], posting["account"], posting["amount"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        # By type, not isinstance: JSON's `true` would pass for a 1.
        if (type(number), type(account), type(amount)) != (int, str, int):
            return None
        return (number, account) if self._amounts.get((number, account)) == amount else None

    def audit(self, reading: Reading) -> Audit:
        """Judge what was read: each posting once, and never one without the other."""
        if reading.error is not None:  # the run stopped early: the other posting of a transfer might still have come
            return audit_names(self.due, reading, self.result_of, _posting_in_words)
        total = sum(self._amounts[name] for name in map(self.result_of, reading.outputs) if name)
        note = f"the sum of both accounts is {total:+,} instead of 0: money was made or lost" if total else ""
        return audit_names(
            self.due, reading, self.result_of, _posting_in_words, self._judge_pairs, [Anomaly.TORN_BATCH], note
        )

    def _judge_pairs(self, found: dict[Any, list[Output]], tally: AnomalyTally) -> None:
        """Report each transfer whose two postings are not there equally often."""
        for number in sorted({number for number, _ in found}):
            times = {account: len(found.get((number, account), ())) for account in ACCOUNTS}
            if len(set(times.values())) > 1:
                told = ", ".join(
                    f"{account} {self._amounts[number, account]:+} {_times(count)}" for account, count in times.items()
                )
                tally.add(Anomaly.TORN_BATCH, "transfer {}: {}", number, told)


def _order(number: int, partition: int, payer: str, payee: str, amount: int) -> Input:
    value = {"id": number, "from": payer, "to": payee, "amount": amount}
    return Input(partition, str(number).encode(), json.dumps(value).encode())


def _posting_in_words(name: tuple[int, str]) -> str:
    return f"the posting of transfer {name[0]} to {name[1]}"


def _times(count: int) -> str:
    return "is not there" if not count else "once" if count == 1 else f"{count} times"


WORKLOADS: dict[str, Callable[..., Workload]] = {"copy": Copy, "count": Count, "transfer": Transfer}
RECORDS = {"copy": 4_000, "count": 20_000, "transfer": 4_000}  # the defaults
# The default number grows with the strikes, by so many records for each slice: each half of a slice must complete a
# window, and the first window is complete after 2,000 records.
OF_A_SLICE = {"copy": 200, "count": 5_000, "transfer": 200}
MOST_STRIKES = 30  # for which the default grows
PARTITIONS = {"copy": 2, "count": 1, "transfer": 2}
# Half of the kills catch a job that writes the two postings in two transactions: four would miss it in 1 run of 16.
KILLS = {"copy": 4, "count": 4, "transfer": 8}


def workload_called(
    name: str,
    records: int | None,
    partitions: int | None,
    seed: int,
    strikes: int = 0,
    keys: int | None = None,
    size: int | None = None,
) -> Workload:
    """Make a workload. None means its default; that of `records` is enough for `strikes` strikes. Raises ValueError."""
    if name not in WORKLOADS:
        raise ValueError(f"no workload is called {name!r}; there are {', '.join(WORKLOADS)}")
    enough = max(RECORDS[name], OF_A_SLICE[name] * (min(strikes, MOST_STRIKES) + 1))
    records, partitions = records or enough, partitions or PARTITIONS[name]
    if size is not None and name != "copy":
        raise ValueError(f"a size can be given to the workload copy only: the values of {name} have one form")
    options = {option: value for option, value in (("keys", keys), ("size", size)) if value is not None}
    return WORKLOADS[name](records, partitions, seed, **options)
