"""All engines, by name."""

from __future__ import annotations

from collections.abc import Sequence

from labs.engines.engine import Engine
from labs.engines.environment import environment_of
from labs.engines.flink import FlinkEngine
from labs.engines.kafka_streams import StreamsEngine
from labs.engines.quix import QuixEngine
from labs.engines.spark_job import SparkEngine

_ALL: tuple[Engine, ...] = (SparkEngine(), FlinkEngine(), QuixEngine(), StreamsEngine())
ENGINES = {engine.name: engine for engine in _ALL}


def usable_engines() -> list[Engine]:
    """Return the engines that need no environment, or whose environment is installed."""
    return [each for each in ENGINES.values() if not each.installed_apart or environment_of(each.name).installed]


def chosen_engines(names: Sequence[str] | None) -> list[Engine]:
    """Return the engines of these names, or all that can be used. Raises NotInstalled, ValueError."""
    chosen = [engine_called(name) for name in names] if names else usable_engines()
    for each in chosen:
        if each.installed_apart:
            environment_of(each.name).needed()
    return chosen


def engine_called(name: str) -> Engine:
    """Return an engine by its name. Raises ValueError, which lists the engines."""
    if name not in ENGINES:
        raise ValueError(f"no engine is called {name!r}; there are {', '.join(ENGINES)}")
    return ENGINES[name]
