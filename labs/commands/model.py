"""Try every order of events, stage by stage, and show the first anomaly and the shortest way to it."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labs.schedules.schedule import Schedule

EXAMPLES = """examples:
  python -m labs model                                     every stage, within its bounds
  python -m labs model --stage "one epoch for all batches" --show
  python -m labs model --stage "the sink" --batches 3
  python -m labs model --stage "offset last" --save doubled.json
  python -m labs model --schedule doubled.json --replay --draw doubled.svg
  python -m labs model --walks 100                         random walks of the real sink, compared with its model
  python -m labs model --replay --times 10                 each counterexample on a real Kafka, ten times
  python -m labs model --stage "at least once" --replay --draw happened.svg

Without --limit a stage is explored to its first anomaly or to the end; at the end, no state within the bounds has one.
The exit code is 1 if Kafka disagrees with the model, else 0, also with anomalies. All stages take about two minutes.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from labs.schedules.model.stages import MODELS

    parser.add_argument("--stage", action="append", choices=MODELS, metavar="NAME", help=f"one of: {'; '.join(MODELS)}")
    for bound in ("batches", "rows", "drivers"):
        parser.add_argument(f"--{bound}", type=whole_number, metavar="N", help="(default: the stage's own, mostly 2)")
    parser.add_argument("--limit", type=whole_number, metavar="N", help="stop after N states")
    parser.add_argument("--show", action="store_true", help="print the shortest schedule of each anomaly")
    parser.add_argument(
        "--draw",
        type=Path,
        metavar="FILE.svg",
        help="draw the one stage's schedule; with --replay, what went over the wire",
    )
    parser.add_argument("--replay", action="store_true", help="carry out each schedule on a real Kafka, and audit it")
    parser.add_argument("--times", type=whole_number, default=1, metavar="N", help="replay each N times (default: 1)")
    parser.add_argument(
        "--walks", type=whole_number, metavar="N", help="compare N random walks of the real sink with the model"
    )
    parser.add_argument("--save", type=Path, metavar="FILE.json", help="save the one stage's schedule")
    parser.add_argument("--schedule", type=Path, metavar="FILE.json", help="show, draw or replay this schedule instead")
    parser.add_argument("--coverage", action="store_true", help="print how often each kind of step was taken")
    parser.add_argument("--json", action="store_true", help="print one JSON object per stage")


def whole_number(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    from labs.schedules.model.stages import MODELS

    for file in filter(None, (arguments.draw, arguments.save)):
        if not file.parent.is_dir():
            raise ValueError(f"{file.parent} is no directory: {file.name} cannot be written there")
    if arguments.walks:
        return _walk_the_sink(arguments.walks)
    if arguments.schedule:
        return _show_saved(arguments)
    names = arguments.stage or list(MODELS)
    if (arguments.draw or arguments.save) and len(names) > 1:
        raise ValueError(f"--{'draw draws' if arguments.draw else 'save saves'} one stage: name it with --stage")
    found = [_explored(name, arguments) for name in names]
    if arguments.replay:
        return _replay(found, arguments)
    if not arguments.json:
        unit = 1 if sys.platform == "darwin" else 1024
        print(f"at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6:,.0f} MB of memory")
    return 0


def _explored(name: str, arguments: argparse.Namespace) -> tuple[Any, Schedule]:
    """Explore a stage, print the finding, and return the stage with its schedule."""
    from labs.commands.console import bench_progress, plain_console
    from labs.schedules.model.checker import explore
    from labs.schedules.model.stages import MODELS

    bounds = {name: getattr(arguments, name) for name in ("batches", "rows", "drivers") if getattr(arguments, name)}
    stage: Any = dataclasses.replace(MODELS[name], **bounds)
    if not arguments.json and name == (arguments.stage or list(MODELS))[0]:
        print(f"{'stage':<31} {'found':<13} {'steps':>5} {'states':>9} {'seconds':>7}")
    with bench_progress(plain_console(stderr=True)) as progress:
        found = explore(stage, arguments.limit, functools.partial(progress.show, f"{name}, states"))
    schedule = found.schedule
    if arguments.json:
        fields = ("stage", "anomaly", "states", "seconds", "complete")
        taken = {" ".join(filter(None, move)): times for move, times in sorted(found.taken.items())}
        said = {key: getattr(found, key) for key in fields} | {"events": len(schedule.events)}
        print(json.dumps(said | ({"coverage": taken} if arguments.coverage else {})))
    else:
        what = found.anomaly or ("nothing" if found.complete else "gave up")
        steps = len(schedule.events) or ""
        print(f"{name:<31} {what:<13} {steps:>5} {found.states:>9,} {found.seconds:>7.1f}")
        for move, times in sorted(found.taken.items()) if arguments.coverage else ():
            print(f"  {times:>9,} {' '.join(filter(None, move))}")
    if arguments.show and found.anomaly:
        print(f"\n{schedule}\n")
    if (arguments.draw or arguments.save) and not found.anomaly:
        raise ValueError(f"{name}: nothing was found, so there is nothing to {'draw' if arguments.draw else 'save'}")
    _keep(schedule, arguments)
    return stage, schedule


def _keep(schedule: Schedule, arguments: argparse.Namespace) -> None:
    from labs.schedules.sequence_diagram import draw

    if arguments.save:
        arguments.save.write_text(schedule.to_json() + "\n")
    if arguments.draw and not arguments.replay:
        arguments.draw.write_text(draw(schedule))


def _show_saved(arguments: argparse.Namespace) -> int:
    """Show, draw or replay a schedule from a file."""
    from labs.equipment.plain_text import text_of
    from labs.schedules.model.stages import MODELS
    from labs.schedules.schedule import Schedule, ScheduleError

    schedule = Schedule.from_json(text_of(arguments.schedule))
    if schedule.stage not in MODELS:
        raise ScheduleError(f"there is no stage {schedule.stage!r}; there are: {'; '.join(MODELS)}")
    if arguments.stage not in (None, [schedule.stage]):
        raise ScheduleError(f"{arguments.schedule} is a schedule of the stage {schedule.stage!r}: leave --stage out")
    batches = MODELS[schedule.stage].batches
    for n, event in enumerate(schedule.events, 1):
        # These may name one more: a driver may start when all is done, and the last batch also asks for the next epoch.
        behind = event.actor == "supervisor" or "fence" in (event.action, event.request)
        if event.batch is not None and not 0 <= event.batch < batches + behind:
            raise ScheduleError(f"step {n}: there is no batch {event.batch}; the batches are 0 to {batches - 1}")
    if arguments.show or not (arguments.draw or arguments.replay):
        print(schedule)
    _keep(schedule, arguments)
    return _replay([(MODELS[schedule.stage], schedule)], arguments) if arguments.replay else 0


def _replay(found: list[tuple[Any, Schedule]], arguments: argparse.Namespace) -> int:
    """Carry out the schedules that have events; return 1 if Kafka disagrees with any, else 0."""
    schedules = [(stage, schedule) for stage, schedule in found if schedule.events]
    if not schedules:
        raise ValueError("found no schedule that could be carried out on Kafka")
    return _replay_all(schedules, arguments.times, arguments.draw)


def _walk_the_sink(walks: int) -> int:
    """Take the real sink through random walks of the model; return 1 if it deviates in any, else 0."""
    from labs.commands.console import bench_progress, plain_console
    from labs.equipment.spark import spark_session
    from labs.schedules.conformance import conforms, walk
    from labs.schedules.replay.replay_bench import replay_bench

    failed = steps = 0
    spark = spark_session()
    with bench_progress(plain_console(stderr=True)) as progress, replay_bench() as kafka:
        for seed in range(1, walks + 1):
            progress.show("walks", seed - 1, walks)
            drawn = walk(seed)
            steps += len(drawn.schedule.events)
            if found := conforms(drawn, kafka, spark):
                failed += 1
                print("\n".join([f"walk {seed}:", *(f"  {line}" for line in found)]))
    print(f"{walks - failed} of {walks} walks of the real sink, {steps:,} steps, are as the model says")
    return 1 if failed else 0


def _replay_all(schedules: Sequence[tuple[Any, Schedule]], times: int, drawing: Path | None) -> int:
    """Carry out the schedules, and print which are only modelled; return 1 if Kafka disagrees with any, else 0."""
    from labs.schedules.replay.counterexample import can_be_replayed

    print(f"\n{'on the real Kafka':<31} {'the model':<13} {'the auditor':<31} {'agreed':>10}")
    played = [(stage, schedule) for stage, schedule in schedules if can_be_replayed(stage)]
    disagreed = _replay_each(played, times, drawing) if played else 0
    for stage, schedule in schedules:
        if not can_be_replayed(stage):
            print(f"{stage.name:<31} {schedule.anomaly or 'nothing':<13} not replayed: it is only modelled")
    return 1 if disagreed else 0


def _replay_each(schedules: Sequence[tuple[Any, Schedule]], times: int, drawing: Path | None) -> int:
    """Return how often Kafka disagreed."""
    from labs.commands.console import bench_progress, plain_console
    from labs.schedules.replay.counterexample import replay_on_kafka
    from labs.schedules.replay.replay_bench import replay_bench
    from labs.schedules.sequence_diagram import draw

    disagreed = 0
    with bench_progress(plain_console(stderr=True)) as progress, replay_bench() as kafka:
        for stage, schedule in schedules:
            differences: list[list[str]] = []
            for n in range(times):
                progress.show(f"{stage.name}, replayed", n, times)
                replayed = replay_on_kafka(schedule, stage, kafka)
                differences.append(replayed.differences)
                if drawing:
                    drawing.write_text(draw(replayed.happened))
            said = ", ".join(f"{n} {a.name.lower().replace('_', ' ')}" for a, n in replayed.audit.counts.items())
            agreed = sum(not lines for lines in differences)
            found = schedule.anomaly or "nothing"
            print(f"{stage.name:<31} {found:<13} {said or 'valid':<31} {agreed:>4} of {times}")
            for line in next((lines for lines in differences if lines), ()):
                print(f"  {line}")
            disagreed += times - agreed
    return disagreed
