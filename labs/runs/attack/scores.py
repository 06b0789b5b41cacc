"""The scores of the attack game: a table in a file, one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from labs.equipment.plain_text import text_of
from labs.runs.attack.language import in_orders
from labs.schedules.model.checker import explore
from labs.schedules.model.drivers_and_network import Stage


class Score(NamedTuple):
    """One game: a line of the table. `steps` and `best` are numbers of orders, `when` is local time in ISO 8601."""

    player: str
    seed: int
    sink: str
    steps: int
    best: int
    broken: bool
    blind: bool
    when: str


TYPES = [str, int, str, int, int, bool, bool, str]  # of a score's fields


def score(player: str, seed: int, stage: Stage, steps: int, broken: bool, blind: bool) -> Score:
    """Return the score of a game that ends now. Explores the stage, which takes a second or two."""
    when = datetime.now().isoformat(timespec="seconds")
    return Score(player, seed, stage.name, steps, fewest(stage), broken, blind, when)


def fewest(stage: Stage) -> int:
    """Return how many orders the model's shortest schedule takes: its events that disturb the run.

    It is the shortest by events, which need not have the fewest orders. Raises ValueError if the model finds nothing.
    """
    found = explore(stage)
    if found.anomaly is None:
        raise ValueError(f"the model finds nothing wrong in {stage.name}, so there is no score")
    return len(in_orders(found.schedule))


def read_scores(file: Path) -> list[Score]:
    """Return the games in a file, oldest first, or none without a file. Raises ValueError, with the line."""
    if not file.exists():
        return []
    text = text_of(file, errors="replace")
    return [_read(file, n, line) for n, line in enumerate(text.removesuffix("\n").split("\n"), 1) if text]


def _read(file: Path, number: int, line: str) -> Score:
    try:
        game = Score(**json.loads(line))
        if [type(each) for each in game] == TYPES:
            return game
    except (ValueError, TypeError, RecursionError):
        pass
    raise ValueError(
        f"{file}, line {number} is not a score, so nothing was written; correct that line, or name another file"
    )


def add_score(file: Path, game: Score) -> None:
    """Append a game to a file. Raises ValueError, and writes nothing, if a line of the file is not a score."""
    read_scores(file)
    with file.open("a+", encoding="utf-8") as scores:
        scores.seek(0)
        if (before := scores.read()) and not before.endswith("\n"):
            scores.write("\n")  # somebody has edited the file
        scores.write(json.dumps(game._asdict(), ensure_ascii=False) + "\n")


def table(games: Iterable[Score]) -> str:
    """Return the games as a table: first those that broke the sink, by how many orders more than the model they took.

    If a game was played blind and the sink survived, the table shows neither its name nor the model's number.
    """
    ranked = sorted(games, key=lambda game: (not game.broken, game.steps - game.best, game.steps, game.when))
    rows = [("player", "seed", "sink", "orders", "model", "broken", "when")]
    for game in ranked:
        told = game.broken or not game.blind
        sink = f"{game.sink if told else '?'}{' (blind)' if game.blind else ''}"
        best, broken = str(game.best) if told else "?", "yes" if game.broken else "no"
        rows.append((game.player, str(game.seed), sink, str(game.steps), best, broken, game.when))
    printed = [["".join(c if c.isprintable() else "?" for c in cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*printed, strict=True)]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in printed)
