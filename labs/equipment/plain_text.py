"""Text from outside (of a student, a log, a file's name, an environment), made fit to be shown wherever text is shown.

What is not printable is written as Python would write it in a string: ESC becomes the four characters `\\x1b`. Then a
terminal does not obey it, XML and JSON can hold it, and nobody is shown the words in another order than they have.
What a format reads as its own (`<`, `|`, `::`) is for whoever writes that format to escape.
"""

from __future__ import annotations

CUT = " … ({} more characters)"


def plain(text: str, longest: int = 4_000) -> str:
    """Return the text in printable characters, line ends and tabs; what is longer is cut, and the cut says so."""
    kept = text[:longest].replace("\r\n", "\n")
    shown = "".join(c if c.isprintable() or c in "\n\t" else _escaped(c) for c in kept)
    return shown + (CUT.format(f"{len(text) - longest:,}") if len(text) > longest else "")


def one_line(text: str, longest: int = 300) -> str:
    """Return the text in printable characters, as one line: line ends and tabs are written as `\\n` and `\\t`."""
    return plain(text, longest).replace("\n", "\\n").replace("\t", "\\t")


def first_line(text: str, longest: int = 300) -> str:
    """Return the first line that says something, and a mark where there are more."""
    first, *more = [line.strip() for line in text[: 100 * longest].splitlines() if line.strip()] or [""]
    return one_line(first, longest) + (" …" if more else "")


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
