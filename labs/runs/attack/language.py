"""How the player is told what orders there are."""

from __future__ import annotations

from labs.runs.attack.orders import EXAMPLES

LANGUAGE = """\
Orders, one a line; what follows # is a comment. One example of each:

{examples}

A moment is before or after a step (plan, epoch, reading, row N, marker, commit or note) of a batch, and if need be of
a driver; or `at the end` (`until the end`), when nobody has anything left to do. Batches and rows count from 0, drivers
from 1. Driver 1 runs first. Where no driver can go on, each being crashed, frozen or waiting for an answer that does
not come, the supervisor starts the next one from the checkpoint. Where a program commits twice, say `the second commit
of batch 0`. An older checkpoint lacks the newest batch; planned anew, that takes in a record more, which the source has
by then, unless it is the last.
"""


def language() -> str:
    """Return the language of orders on one screen."""
    return LANGUAGE.format(examples="\n".join(f"    {each}" for each in EXAMPLES))
