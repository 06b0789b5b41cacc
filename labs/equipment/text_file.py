"""A file that a user has named: its text, or one clear line that says why there is none."""

from __future__ import annotations

from pathlib import Path


def text_of(path: Path, errors: str = "strict") -> str:
    """Return the text of a file, which should be UTF-8. Raises ValueError: one line that names the file."""
    try:
        return path.read_text("utf-8", errors)
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}") from None
    except IsADirectoryError:
        raise ValueError(f"{path} is a directory, and a file is needed") from None
    except PermissionError:
        raise ValueError(f"{path} may not be read: you have no permission") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not a text file in UTF-8") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from error


def check_writable(path: Path) -> None:
    """Raise ValueError, one line, where no file can be written because of its place: said before the work."""
    if path.is_dir():
        raise ValueError(f"{path} is a directory, and a file is to be written")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"{path} cannot be written: there is no directory {path.absolute().parent}")
