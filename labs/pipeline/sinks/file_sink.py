"""The file sink: one file of JSON lines per micro-batch, and a manifest that lists the files of published batches.

    directory/batch-7-1f0c55aa.jsonl     the rows, under a name that no other attempt at the batch has
    directory/_manifest/7.json           says that this file is batch 7, with its number of rows and its checksum

1. Write the rows under a temporary name, sync them to disk, and give them their name in one step.
2. Publish the manifest's entry in the same way. This is the commit: an entry is there as a whole or not at all, and is
   never replaced, so that only one of two drivers can publish a batch.

Guarantee: a reader that follows the manifest (`labs.evidence.readers.other_readers.read_files`) sees each batch exactly
once, complete, and always in the same version. A file that no entry names was left by a crash, or is not finished.
Limitations: one local disk, or a network one with hard links; the checkpoint must survive; the manifest has a
small file for every batch and is never compacted. Of two drivers with different plans, one may still publish in the
microseconds between its last look at the manifest and its entry.

`publish` writes a file that is there as a whole or not at all, whenever the process or the machine stops: the content
is on disk before the name, and no file is ever replaced. An object store needs another way.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import hashlib
import json
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from exactly_once_kafka.errors import BatchFailed, SinkRefused
from exactly_once_kafka.names import check_text
from exactly_once_kafka.points import Points, pass_by
from exactly_once_kafka.protocol import Batch, Marker, Step, is_published
from labs.pipeline.sinks.outside_kafka import SinkOutsideKafka, TransportOutsideKafka

TEMPORARY = ".tmp"


def publish(file: Path, lines: Iterable[str], midway: Callable[[], object] = lambda: None) -> None:
    """Write the lines, each as it is, under a temporary name, and then give them the name `file` in one step.

    `midway` is called when the first line is in the temporary file, even if it is the only one. Raises FileExistsError
    if that file has been published before, OSError.
    """
    temporary = file.with_name(f".{file.name}.{uuid.uuid4().hex[:8]}{TEMPORARY}")
    try:
        with temporary.open("x", encoding="utf-8", newline="") as content:
            for number, line in enumerate(lines):
                content.write(line)
                if number == 0:
                    content.flush()
                    midway()
            content.flush()
            os.fsync(content.fileno())
        os.link(temporary, file)  # like a rename, but it never replaces a file
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(file.parent)


def sync_directory(directory: Path) -> None:
    """Write the names in a directory to disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(directory: Path) -> None:
    """Make a directory, with its parents, and write their names to disk."""
    if not directory.is_dir():
        make_directory(directory.parent)
        directory.mkdir(exist_ok=True)
        sync_directory(directory.parent)


MANIFEST = "_manifest"
# The names that `publish` gives; the directory may have files of others.
OURS = re.compile(r"\.?batch-\d+-[0-9a-f]{8}\.jsonl(\.[0-9a-f]{8}\.tmp)?|\.\d+\.json\.[0-9a-f]{8}\.tmp")
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EXDEV, errno.EMLINK)  # what os.link says, again and again
LONGEST = 255  # bytes of a name in a path, on all usual file systems


@dataclass(frozen=True)
class Entry:
    """An entry of the manifest: the file of batch `batch_id`, with its number of rows and its checksum."""

    batch_id: int
    query_id: str
    attempt: str
    file: str
    rows: int
    sha256: str
    plan: str


class FileSink(SinkOutsideKafka):
    """A foreachBatch function that publishes each micro-batch exactly once, in a directory of the query's own.

    Rows have a `value` column, as for the Kafka sinks: one line of text each. Raises, inside the query:
    SinkRefused if going on could lose or duplicate rows, or if a row is not one line; BatchFailed if the batch failed
    and a restart of the query repeats it.
    """

    def __init__(self, directory: str | Path, *, points: Points = pass_by):
        super().__init__(str(directory) if isinstance(directory, Path) else directory, points)
        self.directory = Path(directory)

    @staticmethod
    def check_name(name: object) -> None:
        """Raise ValueError if this cannot be a directory."""
        check_text("the directory", name)
        if too_long := [part for part in Path(str(name)).parts if len(os.fsencode(part)) > LONGEST]:
            raise ValueError(f"the directory has {too_long[0]!r} in its path; expected names of up to {LONGEST} bytes")

    def place(self, batch: Batch) -> tuple[str, ...]:
        """Return the directory's real path."""
        return "directory", str(self.directory.resolve())

    def transport(self, batch: Batch, values: Iterable[str], execute: Callable[[], object]) -> FileTransport:
        return FileTransport(self.directory, batch, values, execute, self.in_rows(batch))


class FileTransport(TransportOutsideKafka):
    """Takes the steps of one batch: rows and marker are files, and to give the marker its name is the commit."""

    def __init__(
        self,
        directory: Path,
        batch: Batch,
        values: Iterable[str],
        execute: Callable[[], object],
        in_rows: Callable[[], object],
    ):
        super().__init__(batch, values, execute, in_rows)
        self._directory = directory
        self._entry: Entry | None = None

    def take(self, step: Step) -> Any:
        try:
            return super().take(step)
        except OSError as error:
            if error.errno in NO_LINKS and error.filename2 is not None:
                raise SinkRefused(
                    f"sink {self._directory} refuses batch {self.batch.batch_id}: {error}. The sink gives a file its "
                    "name by a hard link, which this file system does not allow: move the directory to another"
                ) from error
            said = f"{type(error).__name__}: {error}. Restart the query: the batch is repeated and published once"
            if isinstance(error, FileExistsError) and step in ("rows", "commit"):
                said = (
                    "another driver has published it meanwhile. If it is the same query, end one of the two; the other "
                    "goes on when it is restarted"
                )
            raise BatchFailed(f"sink {self._directory}, batch {self.batch.batch_id}: {said}") from error

    def read_marker(self) -> Marker | None:
        try:
            make_directory(self._directory / MANIFEST)
            last = max(batches(self._directory), default=None)
            entry = None if last is None else read_entry(self._directory, last)
        except ValueError as error:
            raise SinkRefused(f"sink {str(self._directory)!r} refuses batch {self.batch.batch_id}: {error}") from error
        return Marker(entry.batch_id, entry.query_id, entry.plan) if entry else None

    def rows(self) -> bool:
        """Write the file to disk. No reader uses it yet."""
        self._close_gap()
        self._entry = self._write_file(self.batch.batch_id, self.batch.plan, self.values, self.in_rows)
        return True

    def give_up(self, seconds: float) -> None:
        """Do nothing: no reader uses a file that no entry names."""

    def marker(self) -> None:
        """Do nothing: the manifest's entry is marker and commit in one."""

    def commit(self) -> None:
        """Publish the manifest's entry, which publishes the file."""
        assert self._entry is not None
        if is_published(self.read_marker(), self.batch):  # another driver may have gone on from another marker
            raise FileExistsError(f"batch {self.batch.batch_id} has an entry")
        self._publish_entry(self._entry)

    def next_epoch(self) -> None:
        self._sweep()

    def drain(self) -> None:
        super().drain()
        # The driver that gave the entry its name may have died before the name was on disk.
        sync_directory(self._directory / MANIFEST)
        self._sweep()

    def _write_file(
        self, batch_id: int, plan: str, values: Iterable[str], in_rows: Callable[[], object] = lambda: None
    ) -> Entry:
        attempt, lines = uuid.uuid4().hex[:8], _Lines(values)
        file = _data_file(batch_id, attempt)
        publish(self._directory / file, lines, midway=in_rows)
        return Entry(batch_id, self.batch.query_id, attempt, file, lines.count, lines.sha256.hexdigest(), plan)

    def _publish_entry(self, entry: Entry) -> None:
        publish(_entry_file(self._directory, entry.batch_id), [json.dumps(asdict(entry)) + "\n"])

    def _close_gap(self) -> None:
        """Publish the empty batches that Spark added when it repartitioned the state: entries must have no gap."""
        last = max(batches(self._directory), default=self.batch.batch_id - 1)
        for added in range(last + 1, self.batch.batch_id):
            plan = cast(str, self.batch.previous_plan)  # not None, since a gap comes after batch 0
            self._publish_entry(self._write_file(added, plan, ()))

    def _sweep(self) -> None:
        """Delete the files of failed attempts at this batch."""
        batch_id = self.batch.batch_id
        keep = read_entry(self._directory, batch_id).file
        for pattern in (f"batch-{batch_id}-*", f".batch-{batch_id}-*", f"{MANIFEST}/.{batch_id}.json*"):
            for file in self._directory.glob(pattern):
                if file.name != keep and OURS.fullmatch(file.name):
                    file.unlink(missing_ok=True)


class _Lines:
    """Yields the values as lines; counts them and computes their checksum meanwhile."""

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
    """Return the numbers of the batches in the manifest, in order. Raises ValueError if one is missing."""
    found = _listed(directory)
    if missing := set(range(len(found))) - set(found):
        found = _listed(directory)  # a directory that changes meanwhile may have been listed without an older entry
        missing = set(range(len(found))) - set(found)
    if missing:
        raise ValueError(
            f"{directory / MANIFEST} has {len(found)} entries, up to {found[-1]}.json, and no {min(missing)}.json, so "
            "the rows of that batch are missing: restore it"
        )
    return found


def _listed(directory: Path) -> list[int]:
    listed: list[str] = []
    with contextlib.suppress(FileNotFoundError):
        listed = os.listdir(directory / MANIFEST)  # unlike a glob, it raises if the directory cannot be read
    names = [name.removesuffix(".json") for name in listed if fnmatch.fnmatchcase(name, "[0-9]*.json")]
    if strange := [name for name in names if not name.isdecimal() or str(int(name)) != name]:
        raise ValueError(f"{directory / MANIFEST} has {strange[0]}.json, which no sink has written: move it away")
    return sorted(map(int, names))


def read_entry(directory: Path, batch_id: int) -> Entry:
    """Read the manifest's entry for a batch. Raises OSError, ValueError if it is not one, or is another batch's."""
    file = _entry_file(directory, batch_id)
    text = file.read_text(encoding="utf-8")
    try:
        entry = Entry(**json.loads(text))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file} is not an entry of a manifest ({error}): restore it") from error
    if (entry.batch_id, entry.file) != (batch_id, _data_file(batch_id, entry.attempt)):
        raise ValueError(f"{file} is about batch {entry.batch_id} and {entry.file!r:.100}: restore it")
    return entry


def _entry_file(directory: Path, batch_id: int) -> Path:
    return directory / MANIFEST / f"{batch_id}.json"


def _data_file(batch_id: int, attempt: str) -> str:
    return f"batch-{batch_id}-{attempt}.jsonl"
