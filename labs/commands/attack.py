"""Break a subtly wrong sink: you order which driver crashes and which request is held, on a real Kafka."""

from __future__ import annotations

import argparse
import functools
import getpass
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from labs.equipment.plain_text import one_line

if TYPE_CHECKING:
    from labs.runs.attack.attack import AttackOutcome
    from labs.runs.attack.scores import Score
    from labs.runs.attack.sinks import WrongSink

EXAMPLES = """examples:
  python -m labs attack                                    a sink by chance; write your orders, then an empty line
  python -m labs attack --seed 6 --schedule orders.txt --show --draw attack.svg
  echo "crash driver 1 after the commit of batch 0" | python -m labs attack --seed 1 --scores class.jsonl
  python -m labs attack --seed 6 --solve --show            the model's own shortest schedule, and its orders
  python -m labs attack --scores class.jsonl               the table of a class, and no game

The exit code is 0 if the sink was broken, 1 if it survived, 2 if the orders could not be carried out. With --hint and
without orders it carries out nothing, and the exit code is 0.
"""
DRAWN_FROM = 1000  # seeds, if none is given


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from labs.runs.attack.language import language

    parser.epilog = f"{EXAMPLES}\n{language()}"
    parser.add_argument("--seed", type=int, metavar="N", help="which sink (default: a random one, which is printed)")
    parser.add_argument("--schedule", type=Path, metavar="FILE", help="your orders (default: standard input)")
    parser.add_argument("--blind", action="store_true", help="do not show the sink's program")
    parser.add_argument("--hint", action="store_true", help="say where to look")
    parser.add_argument("--solve", action="store_true", help="carry out the model's shortest schedule, not yours")
    parser.add_argument("--show", action="store_true", help="print what happened, step by step")
    parser.add_argument("--draw", type=Path, metavar="FILE.svg", help="draw what happened")
    parser.add_argument("--scores", type=Path, metavar="FILE", help="add the game to a table; alone: print the table")
    parser.add_argument("--player", metavar="NAME", help="(default: your user name)")


def run(arguments: argparse.Namespace) -> int:
    game = ("seed", "schedule", "blind", "hint", "solve", "show", "draw", "player")
    alone = all(getattr(arguments, name) in (None, False) for name in game)
    try:
        return _print_table(arguments.scores) if arguments.scores and alone else _play(arguments)
    except BrokenPipeError:
        raise
    except (RuntimeError, OSError, ValueError) as error:
        if os.environ.get("LABS_TRACEBACK"):
            raise
        return _usage(str(error))


def _play(arguments: argparse.Namespace) -> int:
    from labs.commands.console import bench_progress, plain_console
    from labs.equipment.plain_text import check_writable
    from labs.runs.attack.attack import attack, solve
    from labs.runs.attack.language import NoOrders, check_possible, in_orders, parse_orders
    from labs.runs.attack.scores import add_score, read_scores, score
    from labs.runs.attack.sinks import wrong_sink
    from labs.schedules.replay.replay_bench import replay_bench
    from labs.schedules.sequence_diagram import draw

    if arguments.solve and arguments.scores:
        raise ValueError("--solve is not scored: leave --scores out")
    if arguments.scores and not arguments.scores.absolute().parent.is_dir():
        raise ValueError(f"{arguments.scores.parent} is no directory: the scores cannot be kept there")
    if arguments.draw:
        check_writable(arguments.draw)
    seed = random.randrange(DRAWN_FROM) if arguments.seed is None else arguments.seed
    sink = wrong_sink(seed)
    if arguments.scores:
        read_scores(arguments.scores)  # a damaged file is reported before the work
    _introduce(seed, sink, arguments)
    try:
        orders = [] if arguments.solve else parse_orders(_lines(arguments.schedule))
    except NoOrders as error:
        if not arguments.hint:
            raise
        print(f"Nothing was carried out: {error}")
        return 0
    if orders:
        check_possible(orders, sink.stage)
    with bench_progress(plain_console(stderr=True)) as progress:
        progress.show("Kafka starts, steps taken", 0)
        with replay_bench() as kafka:
            tell = functools.partial(progress.show, "steps taken")
            outcome = solve(sink.stage, kafka, tell) if arguments.solve else attack(sink.stage, orders, kafka, tell)
    happened = outcome.happened._replace(stage="a sink") if arguments.blind else outcome.happened
    _report(
        outcome._replace(happened=happened), arguments.show, "afterwards, undisturbed" if arguments.solve else "the run"
    )
    if arguments.solve:
        print("\n".join(["In orders:", *(f"    {order}" for order in in_orders(outcome.happened))]))
    else:
        game = score(
            one_line(arguments.player or _user(), 60), seed, sink.stage, len(orders), outcome.broken, arguments.blind
        )
        _print_score(game, sink)
        if arguments.scores:
            add_score(arguments.scores, game)
            print()
            _print_table(arguments.scores)
    if arguments.draw:
        arguments.draw.write_text(draw(happened))
    return 0 if outcome.broken else 1


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # in a container the user may have no name
        return "somebody"


def _introduce(seed: int, sink: WrongSink, arguments: argparse.Namespace) -> None:
    from labs.runs.attack.sinks import source_of

    print(f"seed {seed}: " + ("a hidden sink" if arguments.blind else "a sink with one thing wrong in it"))
    if not arguments.blind:
        print(f"\n{source_of(sink.stage)}\n")
    if arguments.hint:
        print(f"hint: {sink.hint}\n")
    sys.stdout.flush()


def _lines(file: Path | None) -> Iterator[str]:
    """Yield the lines of the schedule; ask for them at a terminal, until an empty one."""
    from labs.equipment.plain_text import text_of
    from labs.runs.attack.language import language

    if file:
        yield from text_of(file, errors="replace").splitlines()
    elif sys.stdin.isatty():
        print(language())
        number = 1
        while line := _asked(f"{number}> "):
            yield line
            number += 1
    else:
        yield from sys.stdin


def _asked(prompt: str) -> str:
    try:
        return input(prompt).strip()
    except EOFError:
        return ""


def _report(outcome: AttackOutcome, show: bool, what: str) -> None:
    if show:
        print(f"{outcome.happened}\n")
    for remark in outcome.remarks:
        print(remark)
    print(f"{what}: {outcome.ended}")
    for judged in outcome.judged:
        print(f"the auditor, {judged}")
    print("The sink is broken." if outcome.broken else "The auditor found no error: the sink has survived.")


def _print_score(game: Score, sink: WrongSink) -> None:
    if game.broken:
        print(f"It was: {sink.name}.")
        print(f"Your orders: {game.steps}; those of the model's shortest schedule: {game.best}.")


def _print_table(file: Path) -> int:
    from labs.runs.attack.scores import read_scores, table

    if not file.exists():
        raise ValueError(f"there is no file {file}")
    print(table(read_scores(file)))
    return 0


def _usage(message: str) -> int:
    print(f"python -m labs attack: {one_line(message, 2_000)}", file=sys.stderr)
    return 2
