"""The anomalies that were found while a history was being judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from labs.evidence.auditor.anomaly import Anomaly
from labs.evidence.auditor.observed import Key, describe

EXAMPLES_PER_ANOMALY = 3


@dataclass
class AnomalyTally:
    """How many of each anomaly were found, and the first three in words."""

    counts: Counter[Anomaly] = field(default_factory=Counter)
    examples: dict[Anomaly, list[str]] = field(default_factory=dict)

    def add(
        self,
        anomaly: Anomaly,
        sentence: str | Callable[..., str],
        *values: object,
        key: Key | None = None,
        times: int = 1,
    ) -> None:
        """Count the anomaly `times` times.

        `sentence` is a template for `values` or a function of them. It is put into words, after the key, only
        if it becomes one of the examples: there may be a million others.
        """
        self.counts[anomaly] += times
        examples = self.examples.setdefault(anomaly, [])
        if len(examples) < EXAMPLES_PER_ANOMALY:
            words = sentence.format(*values) if isinstance(sentence, str) else sentence(*values)
            examples.append(f"{describe(key)}: {words}" if key else words)
