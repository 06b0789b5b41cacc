"""The files that `demo` writes into the user's directory. It never overwrites a file that the lab did not make."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from labs.pipeline.log.generate import Traffic, format_line
from labs.pipeline.log.log_report import printable_name

MADE_HERE = {"Software": "python -m labs demo"}  # noted in each picture, at its beginning


def check_pictures(files: Iterable[Path]) -> None:
    """Raise ValueError if a picture would overwrite a file that `demo` did not make."""
    for file in files:
        if file.exists() and MADE_HERE["Software"].encode() not in file.read_bytes()[:4096]:
            raise _not_ours(file)


def seeded_log(file: Path) -> Path:
    """Write the log, which is always the same. Raises ValueError if a file with other content is in the way."""
    text = "".join(format_line(access) + "\n" for access in Traffic(requests=20_000, clients=200))
    if not file.exists():
        file.write_text(text)
    elif file.read_bytes() != text.encode():
        raise _not_ours(file)
    return file


def _not_ours(file: Path) -> ValueError:
    return ValueError(
        f"{printable_name(file)} is there already, and this command did not make it: nothing was written. "
        "Move it away, or name another directory with --output"
    )
