"""Checks of the names of sinks and topics. Most of them run when the sink is created.

A sink's name becomes a transactional id, a consumer group, a record's key and a file in the checkpoint. librdkafka
treats "" as no name at all and aborts the interpreter; it ignores what follows a NUL.
"""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import quote

LEGAL = re.compile(r"[A-Za-z0-9._-]{1,249}")
LONGEST = 249  # characters of the name as a file in the checkpoint, where %20 stands for a space
UNSEEN = ("Cc", "Cs")  # Unicode's categories of control characters and of lone surrogates, which UTF-8 cannot hold


def check_text(what: str, text: object) -> None:
    """Raise ValueError unless `text` is a str that is not blank, without control characters or lone surrogates."""
    if not isinstance(text, str):
        raise ValueError(f"{what} is {text!r}; expected text: is a setting missing?")
    if not text.strip():
        raise ValueError(f"{what} is {text!r}; expected text that is not empty: is a setting missing?")
    if any(unicodedata.category(character) in UNSEEN for character in text):
        raise ValueError(f"{what} is {text!r}; expected text without control characters or lone surrogates")


def is_whole(text: str) -> bool:
    """Tell whether C and UTF-8 can hold all of the text: no NUL, no lone surrogate."""
    return "\0" not in text and not any(unicodedata.category(character) == "Cs" for character in text)


def check_name(name: object) -> None:
    """Raise ValueError unless a sink may have this name."""
    check_text("the sink's name", name)
    as_file = quote(str(name), safe="")
    if as_file in (".", "..") or len(as_file) > LONGEST:
        raise ValueError(
            f"the sink's name is {str(name)!r:.100}; expected one that can be a file's name, neither '.' nor '..', of "
            f"at most {LONGEST} characters (a letter beyond ASCII counts as 6 or more)"
        )


def check_topic(what: str, topic: object) -> None:
    """Raise ValueError unless Kafka can have a topic of this name."""
    if not isinstance(topic, str) or not LEGAL.fullmatch(topic) or topic in (".", ".."):
        raise ValueError(
            f"{what} is {topic!r:.300}, which is not a name of a Kafka topic: expected up to {LONGEST} of the "
            "characters A-Z, a-z, 0-9, '.', '_' and '-', and neither '.' nor '..'"
        )
