"""The part of `python -m labs model` that needs a Kafka: it replays schedules, and walks the real sink at random."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from labs.commands.console import bench_progress, plain_console
from labs.equipment.spark import spark_session
from labs.schedules.conformance import conforms, walk
from labs.schedules.diagram import draw
from labs.schedules.replay.bench import replay_bench
from labs.schedules.replay.replay import can_be_replayed, replay_on_kafka
from labs.schedules.schedule import Schedule


def walk_the_sink(walks: int) -> int:
    """Take the real sink through random walks of the model; return 1 if it deviates in any, else 0."""
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


def replay_all(schedules: Sequence[tuple[Any, Schedule]], times: int, drawing: Path | None) -> int:
    """Carry out the schedules, and print which are only modelled; return 1 if Kafka disagrees with any, else 0."""
    print(f"\n{'on the real Kafka':<31} {'the model':<13} {'the auditor':<31} {'agreed':>10}")
    played = [(stage, schedule) for stage, schedule in schedules if can_be_replayed(stage)]
    disagreed = _replay_each(played, times, drawing) if played else 0
    for stage, schedule in schedules:
        if not can_be_replayed(stage):
            print(f"{stage.name:<31} {schedule.anomaly or 'nothing':<13} not replayed: it is only modelled")
    return 1 if disagreed else 0


def _replay_each(schedules: Sequence[tuple[Any, Schedule]], times: int, drawing: Path | None) -> int:
    """Return how often Kafka disagreed."""
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
