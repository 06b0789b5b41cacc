"""Connections of a process on an executor are kept, for Spark uses it for one task after the other."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

from exactly_once_kafka.executors.cluster import Cluster

UNUSED = 600  # seconds: then a query has ended, or logs in otherwise by now


@dataclass
class _Kept:
    cluster: Cluster
    provider: Any  # of the tokens that it logs in with, if it does
    used: float  # when a task asked for it last


_kept: dict[str, _Kept] = {}


def kept_cluster(connection: dict[str, Any]) -> Cluster:
    """Return the cluster to which these settings of kafka-python's lead; it logs in with the newest token."""
    key, provider, now = _key(connection), connection.get("sasl_oauth_token_provider"), time.monotonic()
    if key not in _kept:
        for old in [each for each, other in _kept.items() if other.used < now - UNUSED]:
            _end(old)
        _kept[key] = _Kept(Cluster(connection), provider, now)
    elif provider is not None:
        _kept[key].provider.renew(provider)
    _kept[key].used = now
    return _kept[key].cluster


def end_connections(connection: dict[str, Any]) -> None:
    """End its connections, if there are any, and with them what is under way."""
    _end(_key(connection))


def _end(key: str) -> None:
    if kept := _kept.pop(key, None):
        kept.cluster.close()


def _key(connection: dict[str, Any]) -> str:
    return json.dumps(connection, sort_keys=True, default=str)
