"""Spark's checkpoint in miniature: what was planned, which states there are, and which batches are done.

The same files for the same purposes as in a real one, `offsets/N`, `state/N` and `commits/N`, each made once: a
second driver that wants to make one that is there finds out that it is not alone.
"""

from __future__ import annotations

from pathlib import Path

MORE = "the source has grown"


class Taken(Exception):
    """Another driver has written that file; the message is what a driver says of it."""


class SmallCheckpoint:
    """A checkpoint in a directory, shared by the drivers of one query, one after the other or at a time."""

    def __init__(self, directory: str | Path):
        self.directory = Path(directory)
        for kind in ("offsets", "state", "commits"):
            (self.directory / kind).mkdir(parents=True, exist_ok=True)

    @property
    def planned(self) -> tuple[int, ...]:
        """Where each planned batch ends, as the number of records up to there."""
        files = sorted((self.directory / "offsets").iterdir(), key=lambda file: int(file.name))
        return tuple(int(file.read_text()) for file in files)

    @property
    def noted(self) -> int:
        """The last batch that is done, or -1."""
        return max((int(file.name) for file in (self.directory / "commits").iterdir()), default=-1)

    def has_state(self, batch: int) -> bool:
        """Tell whether the batch's plan was executed, without which the next one has nothing to go on from."""
        return (self.directory / "state" / str(batch)).exists()

    def plan(self, batch: int, records: int, available: int) -> int:
        """Plan a batch of so many records, one more if the source has grown, and return where it ends. Raises Taken."""
        begin, more = self.planned[batch - 1] if batch else 0, self.directory / MORE
        end = min(begin + records + more.exists(), available)
        self._make("offsets", batch, str(end), "another driver has")
        more.unlink(missing_ok=True)
        return end

    def note(self, batch: int, computed: bool) -> None:
        """Note that a batch is done, with the state that it leaves if its plan was executed. Raises Taken."""
        self._make("commits", batch, "", "it is noted")
        if computed:
            (self.directory / "state" / str(batch)).touch()

    def roll_back(self) -> None:
        """Go back to before the last batch was planned, as a restored copy does; the source has grown since."""
        last = len(self.planned) - 1
        for kind in ("offsets", "state", "commits"):
            (self.directory / kind / str(last)).unlink(missing_ok=True)
        (self.directory / MORE).touch()

    def _make(self, kind: str, batch: int, text: str, taken: str) -> None:
        try:
            with (self.directory / kind / str(batch)).open("x") as file:
                file.write(text)
        except FileExistsError:
            raise Taken(taken) from None
