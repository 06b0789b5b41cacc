"""Connections of a process on an executor are kept, for Spark uses it for one task after the other."""

from __future__ import annotations

import json
from typing import Any

from exactly_once_kafka.executors.cluster import Cluster

_clusters: dict[str, Cluster] = {}
_providers: dict[str, Any] = {}  # of the tokens that they log in with, if they do


def kept_cluster(connection: dict[str, Any]) -> Cluster:
    """Return the cluster to which these settings of kafka-python's lead; it logs in with the newest token."""
    key, provider = _key(connection), connection.get("sasl_oauth_token_provider")
    if key not in _clusters:
        _clusters[key], _providers[key] = Cluster(connection), provider
    elif provider is not None:
        _providers[key].renew(provider)
    return _clusters[key]


def end_connections(connection: dict[str, Any]) -> None:
    """End its connections, if there are any, and with them what is under way."""
    if cluster := _clusters.pop(_key(connection), None):
        cluster.close()


def _key(connection: dict[str, Any]) -> str:
    return json.dumps(connection, sort_keys=True, default=str)
