"""Read the checkpoint of any Spark Structured Streaming query: which batches are planned, done, or in flight.

    metadata              the query's id
    sources/0/0           where batch 0 began to read
    offsets/N             batch N is planned: where it ends in each source, and its watermark
    state/OP/P/V.delta    partition P of operator OP as batch V - 1 left it (or .snapshot, .changelog, .zip)
    commits/N             batch N is done, and the watermark that the next one will have

The formats are those of Spark's OffsetSeqLog, CommitLog and HDFSBackedStateStoreProvider or RocksDB (Spark 4.2).

Guarantee: it only reads files, without Spark, and reports what Spark will find when it restarts.
Limitations: a local path; checksums are not verified; a running query may be a step ahead of what was read;
Spark deletes the logs of all but the last `spark.sql.streaming.minBatchesToRetain` (100) batches, so the first
batch that is left has no start offsets.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    import pandas
    from pyspark.sql.streaming import StreamingQuery


Offsets = dict[tuple[str, int], int]  # (topic, partition) -> offset

LOG_VERSIONS = ("v1", "v2")
NO_OFFSET = "-"
EXPECTED = "expected the checkpointLocation of a query, a directory with offsets/ and commits/"
# With checkpoint ids (state format v2) an id follows the version: 7_5f0c….changelog
STATE_FILE = re.compile(r"(?P<version>\d+)(_[\w-]+)?\.(?P<kind>delta|snapshot|changelog|zip)")


class CheckpointError(RuntimeError):
    """The directory is no checkpoint that can be read, or does not hold what was asked for."""


class Torn(ValueError):
    """A file of the checkpoint is damaged. The message continues a sentence that begins with the file's name."""


@dataclass(frozen=True)
class Plan:
    """The content of offsets/N. `sources` has each source's end offset as Spark wrote it, None if it has none yet."""

    watermark_ms: int | None
    planned_at_ms: int | None
    settings: dict[str, str]
    sources: tuple[str | None, ...]

    @property
    def end(self) -> Offsets:
        """The end offsets of the sources that are Kafka topics."""
        return {at: offset for source in self.sources for at, offset in kafka_offsets(source).items()}


@dataclass(frozen=True, order=True)
class StateFile:
    """A file in state/. Batch N writes `version` N + 1."""

    operator: int
    partition: int
    store: str
    version: int
    kind: str


def checkpoint_directory(path: str | Path) -> Path:
    """Return the directory of a path or a file: URI. Raises CheckpointError if it is no checkpoint."""
    text = str(path)
    if re.match(r"(?!file:)\w{2,}:/", text):
        raise CheckpointError(f"{text} is not on this machine; copy it here (hadoop fs -get) and read the copy")
    directory = Path(unquote(urlsplit(text).path) if text.startswith("file:") else path)
    if not directory.is_dir():
        raise CheckpointError(f"{directory} is {'a file' if directory.exists() else 'not there'}; {EXPECTED}")
    if (directory / "metadata").is_file() or any((directory / log).is_dir() for log in ("offsets", "commits")):
        return directory
    if directory.name in ("offsets", "commits", "state", "sources") and (directory.parent / "metadata").exists():
        raise CheckpointError(f"{directory} is a part of a checkpoint; read {directory.parent}")
    found = ", ".join(sorted(file.name for file in directory.iterdir())[:5]) or "nothing"
    raise CheckpointError(f"{directory} is no Spark checkpoint: it holds {found}; {EXPECTED}")


def log_files(directory: Path) -> dict[int, Path]:
    """Return the log's files by batch id, without checksums and half-written files, which have other names."""
    if not directory.is_dir():
        return {}
    return {int(file.name): file for file in directory.iterdir() if file.name.isdecimal() and file.is_file()}


def read_plan(file: Path) -> Plan:
    """Read offsets/N. Raises Torn, CheckpointError."""
    version, metadata, *sources = _lines(file, at_least=3)
    if version == "v2":  # each line has its source's name in front: `0:{…}`
        sources = [source.partition(":")[2] for source in sources]
    written = _json_object(metadata) if metadata.strip() else {}
    plan = Plan(
        watermark_ms=written.get("batchWatermarkMs"),
        planned_at_ms=written.get("batchTimestampMs"),
        settings=written.get("conf", {}),
        sources=tuple(None if source == NO_OFFSET else source for source in sources),
    )
    for source in filter(None, plan.sources):
        _json(source)
    return plan


def read_commit(file: Path) -> int | None:
    """Read commits/N: return the next batch's watermark, in epoch millis. Raises Torn, CheckpointError."""
    _, *metadata = _lines(file, at_least=1)
    return _json_object(metadata[0]).get("nextBatchWatermarkMs") if metadata else None


def read_first_offsets(sources: Path) -> Offsets:
    """Read sources/*/0: the first offsets of batch 0. Empty if there is no such file. Raises Torn, CheckpointError."""
    found: Offsets = {}
    for file in sorted(sources.glob("*/0")):
        for line in _lines(file, at_least=2)[1:]:
            found |= kafka_offsets(line)
    return found


def read_query_id(file: Path) -> str:
    """Read metadata. Raises Torn."""
    query_id = _json_object(_text(file)).get("id")
    if not query_id:
        raise Torn("has no query id")
    return query_id


def state_files(directory: Path) -> tuple[StateFile, ...]:
    """List state/: OPERATOR/PARTITION/VERSION.KIND, with one more level where an operator has several stores."""
    found = []
    for file in directory.glob("*/*/**/*"):
        match = STATE_FILE.fullmatch(file.name)
        operator, partition, *store = file.relative_to(directory).parts[:-1]
        if match and operator.isdecimal() and partition.isdecimal():
            version, kind = int(match["version"]), match["kind"]
            found.append(StateFile(int(operator), int(partition), "/".join(store) or "default", version, kind))
    return tuple(sorted(found))


def kafka_offsets(source: str | None) -> Offsets:
    """Decode the offsets of a Kafka source, such as `{"topic": {"0": 31}}`; return {} for any other source."""
    topics = _json(source) if source else {}
    try:
        return {(topic, int(p)): int(offset) for topic, ends in topics.items() for p, offset in ends.items()}
    except (AttributeError, TypeError, ValueError):
        return {}


def _lines(file: Path, at_least: int) -> list[str]:
    lines = _text(file).rstrip("\n").split("\n")
    if not re.fullmatch(r"v\d+", lines[0]):
        raise Torn(f"begins with {lines[0]!r:.40}, not with a log version such as v1")
    if lines[0] not in LOG_VERSIONS:
        raise CheckpointError(
            f"{file} has log version {lines[0]}; this reader knows {' and '.join(LOG_VERSIONS)}. "
            "A newer Spark wrote it: read it with a lab that has that version"
        )
    if len(lines) < at_least:
        raise Torn(f"ends after line {len(lines)} of {at_least} or more")
    return lines


def _text(file: Path) -> str:
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise Torn("is not text") from None
    if not text.strip("\0\n"):
        raise Torn("is empty")
    return text.lstrip("\0")  # a 0 byte begins sources/0/0


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise Torn(f"holds JSON that does not parse: …{text[-40:]!r}") from None


def _json_object(text: str) -> dict:
    value = _json(text)
    if not isinstance(value, dict):
        raise Torn(f"holds {text!r:.40} where a JSON object should be")
    return value


@dataclass(frozen=True)
class Batch:
    """A micro-batch as the checkpoint knows it: [start, end) in each topic partition, times in epoch millis.

    `watermark_ms` is the watermark that it runs with (0: none yet), `next_watermark_ms` that of the next batch.
    `state` lists, per stateful operator, the partitions that hold the version which this batch writes.
    `sources` holds the end offset of each source as Spark wrote it, for sources other than Kafka topics too.
    """

    batch_id: int
    planned: bool
    committed: bool
    start: Offsets = field(default_factory=dict)
    end: Offsets = field(default_factory=dict)
    watermark_ms: int | None = None
    next_watermark_ms: int | None = None
    planned_at_ms: int | None = None
    state: dict[int, tuple[int, ...]] = field(default_factory=dict)
    sources: tuple[str | None, ...] = ()
    damaged: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        """One of committed, in flight, damaged (a file of it is missing or cannot be read)."""
        return "damaged" if self.damaged else "committed" if self.committed else "in flight"

    @property
    def offsets(self) -> int | None:
        """How many offsets the batch spans: its records, and control and aborted records, which take offsets too."""
        known = self.end and self.end.keys() <= self.start.keys()
        return sum(end - self.start[at] for at, end in self.end.items()) if known else None


def ranges(batch: Batch) -> str:
    """Return the offset ranges that the batch reads, as `topic-partition: start–end`, without empty ones.

    For a source other than Kafka, return its end offset as Spark wrote it.
    """
    if not batch.end:
        return ", ".join(filter(None, batch.sources))
    moved = [(at, batch.start.get(at), end) for at, end in sorted(batch.end.items()) if batch.start.get(at) != end]
    return ", ".join(f"{topic}-{p}: {'?' if start is None else start}–{end}" for (topic, p), start, end in moved)


def batches_of(
    plans: dict[int, Plan | None],
    commits: dict[int, int | None],
    start: Offsets,
    state: tuple[StateFile, ...],
    damage: dict[str, str],
) -> tuple[Batch, ...]:
    """Return the batches that the logs and the state describe; `start` holds the first offsets of batch 0."""
    written: defaultdict[int, defaultdict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for file in state:
        written[file.version][file.operator].add(file.partition)
    batches = []
    for n, plan in plans.items():
        damaged = tuple(name for name in (f"offsets/{n}", f"commits/{n}") if name in damage)
        batch = Batch(
            batch_id=n,
            planned=plan is not None,
            committed=n in commits and f"commits/{n}" not in damage,
            next_watermark_ms=commits.get(n),
            # The store counts versions from 1: batch 0 writes version 1. Version 0 is empty and has no file.
            state={operator: tuple(sorted(found)) for operator, found in written[n + 1].items()},
            damaged=damaged,
        )
        if plan:
            batch = replace(
                batch,
                start=start,
                end=plan.end,
                watermark_ms=plan.watermark_ms,
                planned_at_ms=plan.planned_at_ms,
                sources=plan.sources,
            )
        batches.append(batch)
        start = plan.end if plan else {}
    return tuple(batches)


def batch_table(query: StreamingQuery) -> pandas.DataFrame:
    """Return one row per batch: records read, results emitted, counts still in state, and the watermark.

    `watermark` (UTC) is the one that the batch ran with; the batch's own events move the watermark of the next batch.
    """
    rows = []
    for progress in query.recentProgress:
        [state] = progress.stateOperators
        watermark = progress.eventTime.get("watermark", "")
        rows.append(
            {
                "batch": progress.batchId,
                "records read": progress.numInputRows,
                "results emitted": state.numRowsRemoved,
                "counts in state": state.numRowsTotal,
                "watermark": "-" if watermark.startswith("1970") else watermark[11:19],
            }
        )
    import pandas  # here, since the import is slow

    return pandas.DataFrame(rows).set_index("batch")


REFUSED = "Spark refuses to restart"
UNREAD = "Spark does not read it again"
NO_ID = f"{REFUSED}: restore it from a copy, or begin with a new checkpoint"
NO_PLAN = f"{REFUSED}: restore it from a copy (without it Spark plans the batch again, perhaps with other offsets)"
NO_COMMIT = f"{REFUSED}: delete it, and the batch runs again"
NOT_LAST = "Spark runs only the last batch again"


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint directory holds. `damage` names each file that cannot be read, and the consequence."""

    path: Path
    query_id: str | None
    batches: tuple[Batch, ...] = ()
    state: tuple[StateFile, ...] = ()
    damage: tuple[str, ...] = ()

    @property
    def last_committed(self) -> Batch | None:
        return next((batch for batch in reversed(self.batches) if batch.committed), None)

    @property
    def in_flight(self) -> Batch | None:
        """The batch that a restart runs again: planned and not committed."""
        last = self.batches[-1] if self.batches else None
        return last if last and last.status == "in flight" else None

    @property
    def owes_a_batch(self) -> bool:
        """Tell whether the last batch is committed and moved the watermark: the windows it closed are not emitted yet.

        One more batch emits them. A running query adds that batch by itself. A restarted query does not: it waits
        for new records, and with the trigger availableNow it ends if there are none.
        """
        last = self.batches[-1] if self.batches else None
        return bool(last and last.status == "committed" and (last.next_watermark_ms or 0) > (last.watermark_ms or 0))

    @property
    def partitions(self) -> dict[int, int]:
        """The number of state partitions per stateful operator."""
        return dict(Counter(operator for operator, _ in sorted({(f.operator, f.partition) for f in self.state})))

    @property
    def summary(self) -> str:
        """Say in one sentence what a restart does."""
        refused = next((damage for damage in self.damage if REFUSED in damage), None)
        if refused:
            return refused
        if self.in_flight:
            return f"Batch {self.in_flight.batch_id} is planned and not committed: a restart runs it again"
        if self.owes_a_batch:
            return f"Batch {self.batches[-1].batch_id} moved the watermark: the next batch emits the final windows"
        if self.batches:
            return f"Every batch up to {self.batches[-1].batch_id} is committed: a restart repeats none"
        return "No batch is planned yet: a restart reads from the beginning"

    def table(self) -> pandas.DataFrame:
        """Return one row per batch: status, offset ranges and their size, times in UTC, state partitions written."""
        import pandas as pd  # here, since the import is slow

        columns = ["batch", "status", "range", "offsets", "watermark", "planned at", "state"]
        rows = [
            (
                batch.batch_id,
                batch.status,
                ranges(batch),
                batch.offsets,
                pd.to_datetime(batch.watermark_ms or None, unit="ms", utc=True),
                pd.to_datetime(batch.planned_at_ms, unit="ms", utc=True),
                " ".join(f"{len(batch.state.get(o, ()))}/{n}" for o, n in self.partitions.items()),
            )
            for batch in self.batches
        ]
        return pd.DataFrame(rows, columns=columns).set_index("batch").astype({"offsets": "Int64"})

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{escape(note)}</p>" for note in (self.summary, *self.damage[1:]))
        return notes + self.table().to_html(na_rep="–")


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Read a checkpoint directory. Files that cannot be read are named in `damage`; the others are still read.

    Raises CheckpointError if there is no checkpoint, or if its log version is not known.
    """
    directory = checkpoint_directory(path)
    damage: dict[str, str] = {}

    def read(reader: Callable[[Path], Any], name: str, effect: str) -> Any:
        try:
            return reader(directory / name)
        except FileNotFoundError:
            damage[name] = f"{name} is missing. {effect}"
        except Torn as error:
            damage[name] = f"{name} {error}. {effect}"

    planned, done = log_files(directory / "offsets"), log_files(directory / "commits")
    # A running query deletes old files, first a batch's plan and then its commit: ignore commits without a plan.
    first, last = min(planned or done, default=0), max(planned | done, default=-1)
    query_id = read(read_query_id, "metadata", NO_ID)
    plans = {n: read(read_plan, f"offsets/{n}", UNREAD if n < last - 1 else NO_PLAN) for n in range(first, last + 1)}
    last_done = max(done, default=-1)
    commits = {
        n: read(read_commit, f"commits/{n}", NO_COMMIT if n == last_done else UNREAD if n in done else NOT_LAST)
        for n in plans
        if n in done or n < last
    }
    of_kafka = first == 0 and any(plan.end for plan in plans.values() if plan)
    start = read(read_first_offsets, "sources", "Spark reads it for batch 0 only") if of_kafka else None
    state = state_files(directory / "state")
    batches = batches_of(plans, commits, start or {}, state, damage)
    return Checkpoint(directory, query_id, batches, state, tuple(damage.values()))


def damage(path: str | Path) -> str:
    """Return the first file of a checkpoint that is torn or missing, with the consequence: Spark does not name it.

    Return an empty text if no file is, or if no checkpoint can be read.
    """
    try:
        return (*read_checkpoint(path).damage, "")[0]
    except CheckpointError:  # not on this machine, or there is none yet
        return ""
