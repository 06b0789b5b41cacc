"""The mechanisms that can be switched on and off, and the stage of the model that this makes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from labs.schedules.model.kafka import Stage
from labs.schedules.model.variants import without_checkpoint

BATCHES, ROWS = 2, 4  # of the timeline; a crash in the middle of a batch leaves half of its rows


class Switches(NamedTuple):
    """What is on. Kafka knows no transaction without idempotence; who has a checkpoint starts nowhere else."""

    checkpoint: bool = True
    latest: bool = False
    idempotence: bool = True
    transaction: bool = True
    marker: bool = True
    read_committed: bool = True

    @property
    def effective(self) -> Switches:
        """What is on in effect: some mechanisms bring others with them, or leave them nothing to do."""
        return self._replace(
            latest=self.latest and not self.checkpoint, idempotence=self.idempotence or self.transaction
        )

    @property
    def key(self) -> str:
        """The switches as a text of 0 and 1, in their order."""
        return "".join(str(int(each)) for each in self)

    @property
    def stage(self) -> Stage:
        """The stage of the model in which just this is on, and nothing goes wrong but what it is told to."""
        on = self.effective
        steps = {
            "plan": True,
            "fence": on.transaction,
            "read marker": on.marker,
            "rows": True,
            "marker": on.marker,
            "commit": on.transaction,
            "note": True,
        }
        stage = Stage(
            f"timeline {self.key}",
            tuple(step for step, there in steps.items() if there),
            idempotent=on.idempotence,
            batches=BATCHES,
            rows=ROWS,
            luck=(),
        )
        return stage if on.checkpoint else without_checkpoint(stage, "latest" if on.latest else "earliest")


LABELS = {
    "checkpoint": ("checkpoint", "the restart finds offsets/ and commits/"),
    "latest": ("restart from latest", "without a checkpoint: skip what is there, instead of reading all of it again"),
    "idempotence": ("idempotent producer", "Kafka knows a record again by its sequence number"),
    "transaction": ("transaction", "a batch is published as a whole or not at all; needs the idempotent producer"),
    "marker": ("marker", "with the rows is written which batch they are, and a restart looks"),
    "read_committed": ("read_committed", "the reader passes over what was aborted or is still open"),
}
# The stages of the course by their names in the model, and two from before there is a checkpoint.
PRESETS = {
    "no checkpoint": Switches(False, False, False, False, False),
    "start from latest": Switches(False, True, False, False, False),
    "at least once": Switches(True, False, False, False, False),
    "idempotent producer": Switches(True, False, True, False, False),
    "transactions, no marker": Switches(marker=False),
    "the sink": Switches(),
}


def every_switching() -> Iterator[Switches]:
    """Yield every combination."""
    for on in product((False, True), repeat=len(Switches._fields)):
        yield Switches(*on)
