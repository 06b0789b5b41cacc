"""The files of a Spark checkpoint, one at a time: the offset log, the commit log, and the state stores' versions.

    metadata              the query's id
    sources/0/0           where batch 0 began to read
    offsets/N             batch N is planned: where it ends in each source, and its watermark
    state/OP/P/V.delta    partition P of operator OP as batch V - 1 left it (or .snapshot, .changelog, .zip)
    commits/N             batch N is done, and the watermark that the next one will have

The formats are those of Spark's OffsetSeqLog, CommitLog and HDFSBackedStateStoreProvider or RocksDB (Spark 4.2).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

Offsets = dict[tuple[str, int], int]  # (topic, partition) -> offset

LOG_VERSIONS = ("v1", "v2")
NO_OFFSET = "-"
EXPECTED = "expected the checkpointLocation of a query, a directory with offsets/ and commits/"
# With checkpoint ids (state format v2) an id follows the version: 7_5f0c….changelog
STATE_FILE = re.compile(r"(?P<version>\d+)(_[\w-]+)?\.(?P<kind>delta|snapshot|changelog|zip)")


class CheckpointError(RuntimeError):
    """The directory is no checkpoint that can be read, or does not hold what was asked for."""


class Torn(ValueError):
    """A file of the checkpoint is damaged; the message is a predicate, to be put behind the name: "offsets/5 …"."""


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
    """Read sources/*/0: the first offsets of batch 0. Empty if Spark keeps no such file. Raises Torn."""
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
