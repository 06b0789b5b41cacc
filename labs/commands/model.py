"""Try every order of what can happen to a batch, stage by stage: the anomaly that comes first, and the shortest way."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import resource
import sys
from pathlib import Path
from typing import Any

EXAMPLES = """examples:
  python -m labs model                                     every stage, within its bounds
  python -m labs model --stage "one epoch for all batches" --show
  python -m labs model --stage "the sink" --batches 3
  python -m labs model --walks 100                         the real sink, at random, against the model of it
  python -m labs model --replay --times 10                 each counterexample on a real Kafka, ten times over
  python -m labs model --stage "at least once" --replay --draw happened.svg

The exit code is 0 if every stage could be explored, whatever was found in it. Stages that should be right are
explored to the end: no state of theirs, within the bounds, has an anomaly.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from labs.schedules.model.stages import MODELS

    parser.add_argument("--stage", action="append", choices=MODELS, metavar="NAME", help=f"one of: {'; '.join(MODELS)}")
    for bound in ("batches", "rows", "drivers"):
        parser.add_argument(f"--{bound}", type=_whole, metavar="N", help="(default: the stage's own, mostly 2)")
    parser.add_argument("--limit", type=_whole, metavar="N", help="give up after so many states")
    parser.add_argument("--show", action="store_true", help="print the shortest schedule of each anomaly")
    parser.add_argument(
        "--draw",
        type=Path,
        metavar="FILE.svg",
        help="draw the one stage's schedule; with --replay, what went over the wire",
    )
    parser.add_argument("--replay", action="store_true", help="carry each schedule out on a real Kafka, and audit it")
    parser.add_argument("--times", type=_whole, default=1, metavar="N", help="so many times each (default: 1)")
    parser.add_argument("--walks", type=_whole, metavar="N", help="walk the real sink at random, N times")
    parser.add_argument("--json", action="store_true", help="print one JSON object per stage")


def _whole(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def _walk(walks: int) -> int:
    """Take the real sink through random walks of the model; 1 if it does something else anywhere."""
    from labs.commands.progress import bench_progress, plain_console
    from labs.equipment.spark import spark_session
    from labs.schedules.conformance import conforms, walk
    from labs.schedules.replay.player import replay_bench

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


def _replay(names: list[str], bounds: dict[str, int], arguments: argparse.Namespace) -> int:
    """Carry out what was found in the stages that write to Kafka by themselves; 1 if Kafka disagrees with the model."""
    from labs.commands.progress import bench_progress, plain_console
    from labs.schedules.diagram import draw
    from labs.schedules.model.checker import explore
    from labs.schedules.model.stages import MODELS
    from labs.schedules.replay.player import replay_bench
    from labs.schedules.replay.replay import can_be_replayed, replay_on_kafka

    chosen: list[Any] = [MODELS[name] for name in names]
    stages = [dataclasses.replace(stage, **bounds) for stage in chosen]
    found = [(stage, explore(stage, arguments.limit).schedule) for stage in stages if can_be_replayed(stage)]
    counterexamples = [(stage, schedule) for stage, schedule in found if schedule.anomaly]
    if not counterexamples:
        raise ValueError("nothing was found that could be carried out on Kafka")
    disagreed = 0
    print(f"\n{'on the real Kafka':<31} {'the model':<13} {'the auditor':<24} {'agreed':>10}")
    with bench_progress(plain_console(stderr=True)) as progress, replay_bench() as kafka:
        for stage, schedule in counterexamples:
            differences: list[list[str]] = []
            for n in range(arguments.times):
                progress.show(f"{stage.name}, replayed", n, arguments.times)
                replayed = replay_on_kafka(schedule, stage, kafka)
                differences.append(replayed.differences)
                if arguments.draw:
                    arguments.draw.write_text(draw(replayed.happened))
            said = ", ".join(f"{times} {a.name.lower()}" for a, times in replayed.audit.counts.items()) or "valid"
            agreed = sum(not lines for lines in differences)
            print(f"{stage.name:<31} {schedule.anomaly:<13} {said:<24} {agreed:>4} of {arguments.times}")
            for line in next((lines for lines in differences if lines), ()):
                print(f"  {line}")
            disagreed += arguments.times - agreed
    return 1 if disagreed else 0


def run(arguments: argparse.Namespace) -> int:
    from labs.commands.progress import bench_progress, plain_console
    from labs.schedules.diagram import draw
    from labs.schedules.model.checker import explore
    from labs.schedules.model.stages import MODELS

    if arguments.walks:
        return _walk(arguments.walks)
    names = arguments.stage or list(MODELS)
    if arguments.draw and len(names) > 1:
        raise ValueError("--draw draws one stage: name it with --stage")
    bounds = {name: getattr(arguments, name) for name in ("batches", "rows", "drivers") if getattr(arguments, name)}
    if not arguments.json:
        print(f"{'stage':<31} {'found':<13} {'steps':>5} {'states':>9} {'seconds':>7}")
    for name in names:
        stage: Any = dataclasses.replace(MODELS[name], **bounds)
        with bench_progress(plain_console(stderr=True)) as progress:
            found = explore(stage, arguments.limit, functools.partial(progress.show, f"{name}, states"))
        schedule = found.schedule
        if arguments.json:
            fields = ("stage", "anomaly", "states", "seconds", "complete")
            print(json.dumps({key: getattr(found, key) for key in fields} | {"events": len(schedule.events)}))
        else:
            what = found.anomaly or ("nothing" if found.complete else "gave up")
            steps = len(schedule.events) or ""
            print(f"{name:<31} {what:<13} {steps:>5} {found.states:>9,} {found.seconds:>7.1f}")
        if arguments.show and found.anomaly:
            print(f"\n{schedule}\n")
        if arguments.draw and not found.anomaly:
            raise ValueError(f"{name}: nothing was found, so there is nothing to draw")
        if arguments.draw and not arguments.replay:
            arguments.draw.write_text(draw(schedule))
    if arguments.replay:
        return _replay(names, bounds, arguments)
    if not arguments.json:
        unit = 1 if sys.platform == "darwin" else 1024
        print(f"at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6:,.0f} MB of memory")
    return 0
