"""A file that the user names: its text, or one clear line that names it."""

from __future__ import annotations

from pathlib import Path


def text_of(file: Path) -> str:
    """Return the text of a file; bytes that are no UTF-8 are replaced. Raises ValueError where it cannot be read."""
    try:
        return file.read_text("utf-8", "replace")
    except FileNotFoundError:
        raise ValueError(f"there is no file {file}") from None
    except IsADirectoryError:
        raise ValueError(f"{file} is a directory, and not a file") from None
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}") from None
