"""docker-compose.yml says what the tests run, and is safe to start. It is read here, not started."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest
import yaml

from labs.equipment.broker import Broker
from labs.equipment.jars import KAFKA, KAFKA_VERSION, read_sums

COMPOSE = yaml.safe_load(Path(__file__).parents[1].joinpath("docker-compose.yml").read_text())
KAFKAS, WORKERS = ("kafka-0", "kafka-1", "kafka-2"), ("spark-worker-1", "spark-worker-2")
VERSIONS = {
    **dict.fromkeys(KAFKAS, f"apache/kafka:{KAFKA_VERSION}"),
    **dict.fromkeys(("spark-master", *WORKERS), f"apache/spark:{pyspark.__version__}-"),
}
# Where the brokers are is the one thing that must differ.
ADDRESSES = {"controller.quorum.voters", "listeners", "advertised.listeners", "listener.security.protocol.map"}
NOT_BROKER_SETTINGS = {"KAFKA_HEAP_OPTS", "KAFKA_LOG_DIRS"}
SECRET = re.compile(r"passw|secret|credential|private|api_?key|token|sasl_jaas", re.IGNORECASE)


def findings(compose: dict) -> Iterator[str]:
    """Yield what is wrong with a compose file, one line each."""
    services = compose["services"]
    for name, service in services.items():
        yield from _wrong_image(name, service["image"])
        for port in service.get("ports", ()):
            if not str(port).startswith("127.0.0.1:"):
                yield f"{name}: port {port} is published beyond this machine"
        for key, value in service.get("environment", {}).items():
            if SECRET.search(key) or SECRET.search(str(value)):
                yield f"{name}: {key} looks like a secret"
        if re.search(r"(token|password)\s*=|disable_check_xsrf|allow_origin", str(service.get("command"))):
            yield f"{name}: Jupyter's token is not kept on"
        for other, how in service.get("depends_on", {}).items():
            if how["condition"] != "service_healthy" or "test" not in services[other].get("healthcheck", {}):
                yield f"{name}: depends on {other}, whose health is not checked"
    for name, properties in zip(KAFKAS, _embedded_properties(), strict=True):
        yield from _wrong_settings(name, services[name]["environment"], properties)
    yield from _unshared_checkpoint(services)


def _wrong_image(name: str, image: str) -> Iterator[str]:
    _, _, tag = image.partition(":")
    if not re.match(r"\d+\.\d+\.\d+", tag):
        yield f"{name}: {image} is not pinned"
    if not image.startswith(VERSIONS.get(name, "")):
        yield f"{name}: {image} is not what the tests run, {VERSIONS[name]}"


def _embedded_properties() -> list[dict[str, str]]:
    broker = Broker(nodes=3)  # never started
    try:
        return [dict(node._properties) for node in broker.nodes]
    finally:
        broker.close()


def _wrong_settings(name: str, environment: dict[str, str], embedded: dict[str, str]) -> Iterator[str]:
    # The image makes a property of every KAFKA_A_B: a.b.
    settings = {
        key.removeprefix("KAFKA_").lower().replace("_", "."): str(value)
        for key, value in environment.items()
        if key.startswith("KAFKA_") and key not in NOT_BROKER_SETTINGS
    }
    for key in sorted((settings.keys() | embedded.keys()) - ADDRESSES - {"log.dirs"}):
        if settings.get(key) != embedded.get(key):
            yield f"{name}: {key} is {settings.get(key)} here and {embedded.get(key)} in Broker(nodes=3)"
    voters = ",".join(f"{n}@{kafka}:9093" for n, kafka in enumerate(KAFKAS))
    advertised = settings["advertised.listeners"].split(",")
    if settings["controller.quorum.voters"] != voters or f"CLIENT://{name}:9092" not in advertised:
        yield f"{name}: the brokers do not find each other"


def _unshared_checkpoint(services: dict) -> Iterator[str]:
    for name in ("jupyter", *WORKERS):
        if f"checkpoints:{services['jupyter']['environment']['TMPDIR']}" not in services[name].get("volumes", ()):
            yield f"{name}: does not see the checkpoints"


@pytest.mark.bench
def test_compose_file_says_what_the_tests_run_and_is_safe_to_start():
    assert list(findings(COMPOSE)) == []


def test_kafka_version_is_that_of_the_jars_whose_sums_are_committed():
    assert f"kafka_2.13-{KAFKA_VERSION}.jar" in read_sums(KAFKA)


MUTATIONS: dict[str, Callable[[dict], object]] = {
    "kafka-1: apache/kafka:4.3.0 is not what": lambda s: s["kafka-1"].update(image="apache/kafka:4.3.0"),
    "spark-master: apache/spark:4.1.1-": lambda s: s["spark-master"].update(image="apache/spark:4.1.1-scala2.13-x"),
    "jupyter: python:latest is not pinned": lambda s: s["jupyter"].update(image="python:latest"),
    "kafka-0: port 9092:9092 is published": lambda s: s["kafka-0"]["ports"].append("9092:9092"),
    "jupyter: port 0.0.0.0:8888:8888": lambda s: s["jupyter"].update(ports=["0.0.0.0:8888:8888"]),
    "kafka-2: min.insync.replicas is 1 here and 2": lambda s: s["kafka-2"]["environment"].update(
        KAFKA_MIN_INSYNC_REPLICAS="1"
    ),
    "kafka-0: auto.create.topics.enable is None": lambda s: s["kafka-0"]["environment"].pop(
        "KAFKA_AUTO_CREATE_TOPICS_ENABLE"
    ),
    "kafka-0: unclean.leader.election.enable is true here and None": lambda s: s["kafka-0"]["environment"].update(
        KAFKA_UNCLEAN_LEADER_ELECTION_ENABLE="true"
    ),
    "kafka-1: node.id is 0 here and 1": lambda s: s["kafka-1"]["environment"].update(KAFKA_NODE_ID="0"),
    "kafka-1: the brokers do not find": lambda s: s["kafka-1"]["environment"].update(
        KAFKA_CONTROLLER_QUORUM_VOTERS="1@kafka-1:9093"
    ),
    "jupyter: depends on spark-worker-1, whose": lambda s: s["spark-worker-1"].pop("healthcheck"),
    "jupyter: depends on kafka-0, whose": lambda s: s["jupyter"]["depends_on"].update(
        {"kafka-0": {"condition": "service_started"}}
    ),
    "jupyter: DB_PASSWORD looks like": lambda s: s["jupyter"]["environment"].update(DB_PASSWORD="x"),
    "jupyter: OPTIONS looks like": lambda s: s["jupyter"]["environment"].update(OPTIONS="--password x"),
    "jupyter: Jupyter's token is not": lambda s: s["jupyter"]["command"].append("--IdentityProvider.token=''"),
    "spark-worker-2: does not see": lambda s: s["spark-worker-2"].update(volumes=[]),
}


@pytest.mark.bench
@pytest.mark.parametrize("finding", MUTATIONS)
def test_spoiled_copy_is_found(finding):
    spoiled = copy.deepcopy(COMPOSE)
    MUTATIONS[finding](spoiled["services"])
    assert finding in "\n".join(findings(spoiled))
