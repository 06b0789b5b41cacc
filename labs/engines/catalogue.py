"""The engines that there are, by name."""

from __future__ import annotations

from labs.engines.engine import Engine
from labs.engines.flink import FlinkEngine
from labs.engines.quix import QuixEngine
from labs.engines.spark import SparkEngine
from labs.engines.streams import StreamsEngine

_ALL: tuple[Engine, ...] = (SparkEngine(), FlinkEngine(), QuixEngine(), StreamsEngine())
ENGINES = {engine.name: engine for engine in _ALL}


def engine_called(name: str) -> Engine:
    """Return an engine by its name. Raises ValueError, which says what there is."""
    if name not in ENGINES:
        raise ValueError(f"no engine is called {name!r}; there are {', '.join(ENGINES)}")
    return ENGINES[name]
