"""Reads results that are not in Kafka: from a database table, or from a directory with a manifest."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from sqlalchemy import NullPool, create_engine, select

from labs.evidence.auditor.audit import Result
from labs.pipeline.sinks.database_sink import IP_COUNT
from labs.pipeline.sinks.file_sink import MANIFEST, Entry, batches, read_entry


def read_database(url: str) -> list[Result]:
    """Return every result in the database's table, in no order. Raises SQLAlchemyError if it cannot be read."""
    columns = [IP_COUNT.c[name] for name in ("window_start", "ip", "count", "batch_id", "attempt")]
    with create_engine(url, poolclass=NullPool).connect() as connection:
        return [Result(**row._mapping) for row in connection.execute(select(*columns))]


def read_files(directory: str | Path) -> list[Result]:
    """Return every result in the files that the manifest names, by batch and line; other files are ignored.

    Raises OSError if a file cannot be read or there is no manifest, ValueError if a file differs from its entry in the
    manifest or an entry is missing.
    """
    directory = Path(directory)
    if not (directory / MANIFEST).is_dir():
        raise FileNotFoundError(f"{directory} has no {MANIFEST}: no file sink has written here; check the path")
    results: list[Result] = []
    queries = set[str]()
    for batch_id in batches(directory):
        entry = read_entry(directory, batch_id)
        queries.add(entry.query_id)
        if len(queries) > 1:
            raise ValueError(
                f"{directory / MANIFEST}: batch {batch_id} is of another query than those before: restore the manifest"
            )
        for line in _lines(directory, entry):
            value = json.loads(line)
            results.append(
                Result(
                    window_start=value["window_start"],
                    ip=value["ip"],
                    count=value["count"],
                    batch_id=batch_id,
                    attempt=entry.attempt,
                    batch_rows=entry.rows,
                    partition=0,
                    offset=len(results),
                )
            )
    return results


def _lines(directory: Path, entry: Entry) -> list[bytes]:
    content = (directory / entry.file).read_bytes()
    lines = content.split(b"\n")[:-1]
    if len(lines) != entry.rows or hashlib.sha256(content).hexdigest() != entry.sha256:
        raise ValueError(
            f"{entry.file} differs from the manifest's entry for batch {entry.batch_id}: {len(lines)} lines instead of "
            f"{entry.rows}, or other content"
        )
    return lines
