"""How far a partition of the source has been read, and whether a row lies behind that or before it.

In Real-Time Mode an epoch has no plan: Spark notes where it ended, after it ran. A repeated epoch begins where the last
logged one ended, and ends somewhere else than it did the first time. So "epoch 7 is done" says nothing about a row, and
"record 41 of partition 0 is done" says all.
"""

from __future__ import annotations

import json
from typing import NamedTuple


class Position(NamedTuple):
    """The `row`-th row, from 1, that the query made of the source's record at `offset`. Positions have an order."""

    offset: int
    row: int

    def __str__(self) -> str:
        return json.dumps(self._asdict(), sort_keys=True, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str | None) -> Position:
        """Read what `str` has written; nothing stands for `BEGINNING`. Raises ValueError, KeyError."""
        if text is None:
            return BEGINNING
        fields = json.loads(text)
        return cls(fields["offset"], fields["row"])


BEGINNING = Position(-1, 0)  # before every row


class SourceRows:
    """Gives each row of one source partition its position, in the order in which a task gets them."""

    def __init__(self) -> None:
        self.last = BEGINNING

    def position(self, offset: int) -> Position:
        """Return the position of the next row, made of the record at `offset`. Raises ValueError if it goes back."""
        if offset < self.last.offset:
            raise ValueError(
                f"a row of the source's offset {offset} came after one of {self.last.offset}; expected the order of "
                "the source: let nothing between source and sink move rows from one task to another, or sort them"
            )
        self.last = Position(offset, self.last.row + 1 if offset == self.last.offset else 1)
        return self.last
