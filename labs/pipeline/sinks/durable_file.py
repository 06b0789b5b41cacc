"""Files that are there whole or not at all, whenever the process or the machine stops.

Guarantee: `publish` never shows a part of the content, never replaces a file, and has the content on disk before
the name. Where it stops: a local disk, or a network one with hard links; an object store needs another way.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path

TEMPORARY = ".tmp"


def publish(file: Path, lines: Iterable[str], midway: Callable[[], object] = lambda: None) -> None:
    """Write the lines, each as it is, under a temporary name, and then give them the name `file` in one step.

    `midway` is called when the first line is in the temporary file, and others are not. Raises FileExistsError
    if somebody has published that file before, OSError.
    """
    temporary = file.with_name(f".{file.name}.{uuid.uuid4().hex[:8]}{TEMPORARY}")
    try:
        with temporary.open("x", encoding="utf-8", newline="") as content:
            for number, line in enumerate(lines):
                if number == 1:
                    content.flush()
                    midway()
                content.write(line)
            content.flush()
            os.fsync(content.fileno())
        os.link(temporary, file)  # as a rename, but never over a file that is there
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(file.parent)


def sync_directory(directory: Path) -> None:
    """Have the names in a directory on disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
