"""Makes text from outside (of a student, a log, a file's name, an environment) safe to show.

A character that is not printable is written as in a Python string: ESC becomes the four characters `\\x1b`. So a
terminal does not obey it, XML and JSON can hold it, and it cannot change the order in which words are shown. Code that
writes a format must escape that format's own characters itself (`<`, `|`, `::`).

`text_of` returns the text of a file that a user has named, or says in one line why it cannot.
"""

from __future__ import annotations

import os
from pathlib import Path

CUT = " … ({} more characters)"


def plain(text: str, longest: int = 4_000) -> str:
    """Return the text in printable characters, line ends and tabs; a longer text is cut, and its end says so."""
    kept = text[:longest].replace("\r\n", "\n")
    shown = "".join(c if c.isprintable() or c in "\n\t" else _escaped(c) for c in kept)
    return shown + (CUT.format(f"{len(text) - longest:,}") if len(text) > longest else "")


def one_line(text: str, longest: int = 300) -> str:
    """Return the text in printable characters, as one line: line ends and tabs are written as `\\n` and `\\t`."""
    return plain(text, longest).replace("\n", "\\n").replace("\t", "\\t")


def first_line(text: str, longest: int = 300) -> str:
    """Return the first line that is not blank, and "…" if there are more."""
    first, *more = [line.strip() for line in text[: 100 * longest].splitlines() if line.strip()] or [""]
    return one_line(first, longest) + (" …" if more else "")


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def text_of(path: Path, errors: str = "strict") -> str:
    """Return the text of a file, which should be UTF-8. Raises ValueError: one line that names the file."""
    try:
        return path.read_text("utf-8-sig", errors)  # some editors begin a file with a byte order mark
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
    """Raise ValueError, with one line, if no file can be written at this path. Call it before the work."""
    if path.is_dir():
        raise ValueError(f"{path} is a directory, and a file is needed")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"{path} cannot be written: there is no directory {path.absolute().parent}")
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise ValueError(f"{path} may not be written: you have no permission")
