"""The file sink: one file of JSON lines per micro-batch, and a manifest that says which files count.

    directory/batch-7-1f0c55aa.jsonl     the rows, under a name that no other attempt at the batch has
    directory/_manifest/7.json           batch 7 of this query is that file: its rows and its checksum

1. Write the rows under a temporary name, sync them to disk, and give them their name in one step.
2. Publish the manifest's entry in the same way. This is the commit: an entry is there whole or not at all, and
   never replaced, so that of two drivers with the same batch one loses.

Guarantee: a reader who obeys the manifest (`read_files` in labs.evidence.readers) sees each batch exactly once,
whole, and always in the same version. Files that no entry names are what a crash left behind, or not yet done.
Where it stops: one local disk, or a network one with hard links; the checkpoint must survive; the manifest has a
small file for every batch and is never compacted.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark.sql import DataFrame

from exactly_once_kafka.batch import Batch, Marker
from exactly_once_kafka.errors import BatchFailed, SinkRefused
from exactly_once_kafka.names import check_text
from exactly_once_kafka.points import Points, pass_by
from labs.pipeline.sinks.durable_file import publish
from labs.pipeline.sinks.outside_kafka import SinkOutsideKafka

MANIFEST = "_manifest"
LONGEST = 255  # bytes of a name in a path, on all usual file systems


@dataclass(frozen=True)
class Entry:
    """A line of the manifest: batch `batch_id` is the file of that name, with so many rows and that checksum."""

    batch_id: int
    query_id: str
    attempt: str
    file: str
    rows: int
    sha256: str
    plan: str | None = None  # where an older version of the sink wrote the entry


class FileSink(SinkOutsideKafka):
    """A foreachBatch function that publishes each micro-batch exactly once, in a directory of the query's own.

    Rows have a `value` column, as for the Kafka sinks: one line of text each. Raises, inside the query:
    SinkRefused where going on could lose or double rows, or a row is no line; BatchFailed where the batch failed and a
    restart of the query will repeat it.
    """

    def __init__(self, directory: str | Path, *, points: Points = pass_by):
        super().__init__(str(directory) if isinstance(directory, Path) else directory, points)
        self.directory = Path(directory)

    @staticmethod
    def check_name(name: object) -> None:
        """Raise ValueError if that can be no directory."""
        check_text("the directory", name)
        if too_long := [part for part in Path(str(name)).parts if len(os.fsencode(part)) > LONGEST]:
            raise ValueError(f"the directory has {too_long[0]!r} in its path; expected names of up to {LONGEST} bytes")

    def place(self) -> tuple[str, ...]:
        """Return the directory, whichever of its paths was given."""
        return "directory", str(self.directory.resolve())

    def read_marker(self, batch: Batch) -> Marker | None:
        try:
            (self.directory / MANIFEST).mkdir(parents=True, exist_ok=True)
            last = max(batches(self.directory), default=None)
            entry = None if last is None else read_entry(self.directory, last)
        except OSError as error:
            raise self._failed(batch, error) from error
        except ValueError as error:
            raise SinkRefused(f"sink {self.name!r} refuses batch {batch.batch_id}: {error}") from error
        return Marker(entry.batch_id, entry.query_id, entry.plan) if entry else None

    def drain(self, rows: DataFrame) -> None:
        """Execute a batch that is done to nowhere, and clear away what failed attempts at it have left."""
        super().drain(rows)
        self._sweep(max(batches(self.directory)))

    def write(self, values: Iterable[str], batch: Batch) -> None:
        """Write a batch that is not committed yet: first the file, then the entry that names it. Raises BatchFailed."""
        batch_id = batch.batch_id
        self.points("before_write", batch_id)
        self._close_gap(batch)
        attempt = uuid.uuid4().hex[:8]
        file, lines = _data_file(batch_id, attempt), _Lines(values)
        try:
            # Step 1. The file: whole, on disk, and of no account yet.
            with self.refusing_rows(batch):
                publish(self.directory / file, lines, midway=lambda: self.points("mid_transaction", batch_id))
            self.points("before_commit", batch_id)
            self.may_be_done()
            # Step 2. The entry, which makes it count.
            entry = Entry(batch_id, batch.query_id, attempt, file, lines.count, lines.sha256.hexdigest(), batch.plan)
            publish(_entry_file(self.directory, batch_id), [json.dumps(asdict(entry)) + "\n"])
        except FileExistsError as error:
            raise BatchFailed(
                f"sink {self.directory}, batch {batch_id}: another driver has published it meanwhile. If it is the "
                "same query, end one of the two; the other goes on when it is restarted"
            ) from error
        except OSError as error:
            raise self._failed(batch, error) from error
        self.points("after_commit", batch_id)
        self._sweep(batch_id)

    def _close_gap(self, batch: Batch) -> None:
        """Publish what Spark added without rows when it repartitioned the state, so that no entry is missing."""
        last = max(batches(self.directory), default=batch.batch_id - 1)
        try:
            for added in range(last + 1, batch.batch_id):
                attempt, lines = uuid.uuid4().hex[:8], _Lines(())
                publish(self.directory / f"batch-{added}-{attempt}.jsonl", lines)
                entry = Entry(
                    added,
                    batch.query_id,
                    attempt,
                    f"batch-{added}-{attempt}.jsonl",
                    lines.count,
                    lines.sha256.hexdigest(),
                    batch.previous_plan,
                )
                publish(_entry_file(self.directory, added), [json.dumps(asdict(entry)) + "\n"])
        except OSError as error:
            raise self._failed(batch, error) from error

    def _sweep(self, batch_id: int) -> None:
        """Delete what attempts at this batch have left that were not the one to succeed."""
        keep = read_entry(self.directory, batch_id).file
        for pattern in (f"batch-{batch_id}-*", f".batch-{batch_id}-*", f"{MANIFEST}/.{batch_id}.json*"):
            for file in self.directory.glob(pattern):
                if file.name != keep:
                    file.unlink(missing_ok=True)

    def _failed(self, batch: Batch, error: OSError) -> BatchFailed:
        return BatchFailed(
            f"sink {self.directory}, batch {batch.batch_id}: {type(error).__name__}: {error}. "
            "Restart the query: the batch is repeated and published once"
        )


class _Lines:
    """The values as lines, counted and summed up on their way to the disk."""

    def __init__(self, values: Iterable[str]):
        self._values, self.count, self.sha256 = values, 0, hashlib.sha256()

    def __iter__(self) -> Iterator[str]:
        for value in self._values:
            if "\n" in value:
                raise ValueError(f"a value with a line break cannot be a line: {value!r:.80}")
            line = value + "\n"
            self.count += 1
            self.sha256.update(line.encode())
            yield line


def batches(directory: Path) -> list[int]:
    """Return which batches the manifest has, in order. Raises ValueError if one is missing: its rows would be."""
    found = _listed(directory)
    if missing := set(range(len(found))) - set(found):
        found = _listed(directory)  # a directory that changes meanwhile may have been listed without an older entry
        missing = set(range(len(found))) - set(found)
    if missing:
        raise ValueError(
            f"{directory / MANIFEST} has {len(found)} entries, up to {found[-1]}.json, and no {min(missing)}.json, "
            "with which the rows of that batch are missing: restore it"
        )
    return found


def _listed(directory: Path) -> list[int]:
    names = [file.stem for file in (directory / MANIFEST).glob("[0-9]*.json")]
    if strange := [name for name in names if not name.isdecimal() or str(int(name)) != name]:
        raise ValueError(f"{directory / MANIFEST} has {strange[0]}.json, which no sink has written: move it away")
    return sorted(map(int, names))


def read_entry(directory: Path, batch_id: int) -> Entry:
    """Read the manifest's entry for a batch. Raises OSError, ValueError if it is none, or another batch's."""
    file = _entry_file(directory, batch_id)
    text = file.read_text(encoding="utf-8")
    try:
        entry = Entry(**json.loads(text))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file} is no entry of a manifest ({error}): restore it") from error
    if (entry.batch_id, entry.file) != (batch_id, _data_file(batch_id, entry.attempt)):
        raise ValueError(f"{file} is about batch {entry.batch_id} and {entry.file!r:.100}: restore it")
    return entry


def _entry_file(directory: Path, batch_id: int) -> Path:
    return directory / MANIFEST / f"{batch_id}.json"


def _data_file(batch_id: int, attempt: str) -> str:
    return f"batch-{batch_id}-{attempt}.jsonl"
