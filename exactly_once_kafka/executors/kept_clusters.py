"""Connections of a process on an executor are kept, for Spark uses it for one task after the other."""

from __future__ import annotations

import json
import time
from typing import Any

from exactly_once_kafka.executors.cluster import Cluster

UNUSED = 600  # seconds: then a query has ended, or logs in otherwise by now

_clusters: dict[str, Cluster] = {}
_used: dict[str, float] = {}  # when a task asked for it last
_providers: dict[str, Any] = {}  # of the tokens that they log in with, if they do


def kept_cluster(connection: dict[str, Any]) -> Cluster:
    """Return the cluster to which these settings of kafka-python's lead; it logs in with the newest token."""
    key, provider = _key(connection), connection.get("sasl_oauth_token_provider")
    _used[key] = time.monotonic()
    if key not in _clusters:
        for old in [each for each, last in _used.items() if last < _used[key] - UNUSED]:
            _end(old)
        _clusters[key], _providers[key] = Cluster(connection), provider
    elif provider is not None:
        _providers[key].renew(provider)
    return _clusters[key]


def end_connections(connection: dict[str, Any]) -> None:
    """End its connections, if there are any, and with them what is under way."""
    _end(_key(connection))


def _end(key: str) -> None:
    _used.pop(key, None)
    _providers.pop(key, None)
    if cluster := _clusters.pop(key, None):
        cluster.close()


def _key(connection: dict[str, Any]) -> str:
    return json.dumps(connection, sort_keys=True, default=str)
