"""What a new broker's directory begins with: made once by Kafka's own tool, and kept, since each call is a JVM.

`kafka-storage format` writes two files. `meta.properties` has the node's ids and is written anew here for each node;
`bootstrap.checkpoint` has the features of a new cluster, which follow from Kafka's version, and from whether unstable
ones are wanted: that is kept. Where it stops: a file that is not whole is not used, and the tool is asked again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path

from labs.equipment.jars import KAFKA_VERSION
from labs.equipment.java import lab_cache

FEATURES, IDS = "bootstrap.checkpoint", "meta.properties"
DECISIVE = ("process.roles", "unstable.feature.versions.enable")  # the settings that the tool looks at


def is_formatted(data: Path) -> bool:
    return (data / IDS).exists()


def format_from_kept(properties: Mapping[str, str], cluster_id: str, data: Path) -> bool:
    """Write what a new node of these properties begins with; tell whether such a format was kept."""
    features = _kept(properties)
    if features is None:
        return False
    data.mkdir(parents=True, exist_ok=True)
    (data / FEATURES).write_bytes(features)
    ids = {"version": "1", "cluster.id": cluster_id, "node.id": properties["node.id"], "directory.id": new_id()}
    _write_whole(data / IDS, "".join(f"{name}={value}\n" for name, value in ids.items()).encode())  # last: now it is
    return True


def keep_format(properties: Mapping[str, str], data: Path) -> None:
    """Keep what the tool has written for a node of these properties. A cache that cannot be written is none."""
    features = (data / FEATURES).read_bytes()
    with contextlib.suppress(OSError):
        _folder(properties).mkdir(parents=True, exist_ok=True)
        _write_whole(_folder(properties) / _sum(features), features)


def new_id() -> str:
    """Return a random id as Kafka writes them: 22 characters, of which the first is no hyphen."""
    while (made := urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return made


def _kept(properties: Mapping[str, str]) -> bytes | None:
    with contextlib.suppress(OSError):
        for file in _folder(properties).iterdir():
            if _sum(features := file.read_bytes()) == file.name:
                return features
    return None


def _folder(properties: Mapping[str, str]) -> Path:
    described = json.dumps([KAFKA_VERSION, *(properties.get(name) for name in DECISIVE)])
    return lab_cache() / "formatted" / hashlib.sha256(described.encode()).hexdigest()[:16]


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _write_whole(file: Path, content: bytes) -> None:
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    fresh.write_bytes(content)
    fresh.replace(file)
