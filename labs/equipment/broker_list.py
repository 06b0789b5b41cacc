"""Tells when a client of confluent-kafka has lost its brokers for good, and must be replaced by a new one.

The fault is librdkafka's (its issue 5301; seen in 2.11 to 2.16, not in 2.10). A single broker that shuts down cleanly
still answers a request for metadata, with an empty list of brokers, and then closes its connections. A client that
notices the closed connection while it still reads the answer removes the broker from its list, and cancels the return
to `bootstrap.servers` that it has just planned. Then it knows no broker that it could ask (2.11: for five minutes).
"""

from __future__ import annotations

import json
from typing import Any

EVERY_MS = 2_000
IN_A_ROW = 2  # reports: one may fall into the 50 ms in which a healthy client returns to `bootstrap.servers`


class BrokerList:
    """What one client reports of its brokers, every two seconds, to whoever polls it. It is created with `settings`."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {"statistics.interval.ms": EVERY_MS, "stats_cb": self._look}
        self._empty = 0  # reports in a row

    @property
    def is_lost(self) -> bool:
        """Whether the client knows no broker any more, not even one of `bootstrap.servers`."""
        return self._empty >= IN_A_ROW

    def _look(self, report: str) -> None:
        brokers = json.loads(report)["brokers"].values()
        known = any(broker["source"] != "logical" for broker in brokers)  # logical: a coordinator, wherever it is
        self._empty = 0 if known else self._empty + 1
