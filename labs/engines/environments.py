"""The environments that there are, by their engines' names."""

from __future__ import annotations

from pathlib import Path

from labs.engines.environment import Environment
from labs.engines.java_environment import JavaEnvironment
from labs.engines.python_environment import PythonEnvironment
from labs.equipment.jars import flink_connector_jars, streams_jars

FLINK = PythonEnvironment("flink", fetched_mb=420, kept_mb=710, newest_python=(3, 12), jars=flink_connector_jars)
QUIX = PythonEnvironment("quix", fetched_mb=20, kept_mb=80, newest_python=(3, 14))
STREAMS = JavaEnvironment(
    "streams", fetched_mb=90, kept_mb=90, source=Path(__file__).with_name("IpCount.java"), jars=streams_jars
)
ENVIRONMENTS: dict[str, Environment] = {each.engine: each for each in (FLINK, QUIX, STREAMS)}


def environment_of(engine: str) -> Environment:
    """Return the environment of an engine. Raises ValueError if it needs none, or there is no such engine."""
    if engine not in ENVIRONMENTS:
        raise ValueError(f"{engine!r} is not installed apart; what is: {', '.join(ENVIRONMENTS)}")
    return ENVIRONMENTS[engine]
