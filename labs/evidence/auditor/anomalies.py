"""The outcome of an audit: its verdict, its numbers, and the first anomalies in words. `audit` decides it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from html import escape
from typing import Any

from labs.evidence.auditor.observed import Key, describe


class Verdict(StrEnum):
    """UNKNOWN is not a success: the evidence does not decide between valid and invalid."""

    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"


GROUNDS = {"valid": "#00694c", "passed": "#00694c", "invalid": "#a83f00", "failed": "#a83f00"}


def badge(verdict: str) -> str:
    """Return HTML for a verdict on a coloured background, which can be read on a light page and on a dark one."""
    ground = GROUNDS.get(verdict, "#57606a")
    return f'<b style="color:#fff;background:{ground};box-shadow:0 0 0 2px {ground}">{escape(verdict)}</b>'


class Fate(StrEnum):
    """What became of a result. Each record beyond the first of its window and IP is duplicated."""

    DELIVERED = "delivered"
    DUPLICATED = "duplicated"
    LOST = "lost"
    WRONG = "wrong"


class Anomaly(Enum):
    """A way in which a history differs from the expected one; the value is its meaning in one sentence."""

    LOST = "An expected result is not there."
    DUPLICATE = "A result is there again, with an equal count."
    CONFLICT = "A result is there more than once, with unequal counts."
    UNDERCOUNT = "A count is smaller than expected."
    OVERCOUNT = "A count is larger than expected."
    PHANTOM = "A result is there for a window and IP that had no requests."
    ABORTED_READ = "A record of an aborted transaction was read."
    TORN_BATCH = "Only some of the rows that an attempt at a batch wrote are visible."
    NONMONOTONIC = "A partition holds rows of a batch after rows of a later batch."
    READERS_DISAGREE = "A record was seen by only one of two readers."
    HANGING_TRANSACTION = "The last record of a partition cannot be read: an open transaction hides it."
    SOURCE_LOST = "A record that was acknowledged is not in the source topic."
    SOURCE_DUPLICATE = "A record is in the source topic more often than it was sent."
    LATE_DROPPED = "A record came after its window was final, and was dropped as it should be."
    INDETERMINATE = "A send was never acknowledged: the record may or may not be stored, and either is right."

    @property
    def meaning(self) -> str:
        return self.value

    @property
    def is_error(self) -> bool:
        """Tell whether this anomaly alone makes a history invalid."""
        return self not in (Anomaly.LATE_DROPPED, Anomaly.INDETERMINATE)


EXAMPLES_PER_ANOMALY = 100
SHOWN = 3  # examples per anomaly in a terminal or a notebook


@dataclass
class AnomalyTally:
    """How many of each anomaly were found, and the first hundred in words."""

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

        `sentence` is a template for `values` or a function of them; an example is the key and this sentence. Only the
        first EXAMPLES_PER_ANOMALY sentences are made, since there may be a million anomalies.
        """
        self.counts[anomaly] += times
        examples = self.examples.setdefault(anomaly, [])
        if len(examples) < EXAMPLES_PER_ANOMALY:
            words = sentence.format(*values) if isinstance(sentence, str) else sentence(*values)
            examples.append(f"{describe(key)}: {words}" if key else words)


@dataclass(frozen=True, kw_only=True, repr=False)
class Audit:
    """What an audit found.

    Always: observed = distinct results + duplicated. A result is a window and IP, a record is one copy of it.
    """

    verdict: Verdict
    expected: int  # results
    observed: int  # records read
    counts: Counter[Anomaly]  # only what was found; 0 for the rest
    examples: dict[Anomaly, list[str]]  # the first hundred of each
    by_window: dict[Fate, Counter[int]]  # window start in epoch milliseconds -> how many
    judged: frozenset[Anomaly]  # the anomalies that the evidence could have shown
    reason: str = ""  # why the verdict is unknown, and other remarks

    @property
    def valid(self) -> bool:
        """Tell whether the history was judged and has no error."""
        return self.verdict is Verdict.VALID

    @property
    def delivered(self) -> int:
        """Results that are there with the right count, once or more."""
        return self.by_window[Fate.DELIVERED].total()

    @property
    def duplicated(self) -> int:
        """Records beyond the first of their window and IP."""
        return self.by_window[Fate.DUPLICATED].total()

    @property
    def lost(self) -> int:
        """Expected results of which there is no record."""
        return self.counts[Anomaly.LOST]

    @property
    def conflicting(self) -> int:
        """Results that are there more than once, with unequal counts."""
        return self.counts[Anomaly.CONFLICT]

    @property
    def why(self) -> str:
        """Return the verdict's reason and the anomalies that were found, as one text; also those that are no errors."""
        found = [f"{anomaly.name} {self.counts[anomaly]:,}: {anomaly.meaning}" for anomaly in self._found()]
        return " ".join([*([f"{self.reason}."] if self.reason else []), *found])

    def __bool__(self) -> bool:
        raise TypeError("an audit is neither true nor false: ask audit.valid, or compare audit.verdict")

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, with the anomalies that were found, by name."""
        return {
            "verdict": str(self.verdict),
            "reason": self.reason,
            **dict(self._numbers()),
            "conflicting": self.conflicting,
            "anomalies": {anomaly.name: self.counts[anomaly] for anomaly in self._found()},
            "examples": {anomaly.name: list(self.examples[anomaly]) for anomaly in self._found()},
            "not_judged": [anomaly.name for anomaly in Anomaly if anomaly not in self.judged],
        }

    def __str__(self) -> str:
        lines = [f"audit: {self.verdict}" + (f" ({self.reason})" if self.reason else "")]
        lines += [f"  {name:<10} {number:>11,}" for name, number in self._numbers()]
        for anomaly in self._found():
            lines.append(f"{anomaly.name} {self.counts[anomaly]:,}: {anomaly.meaning}")
            lines += [f"    {example}" for example in self.examples[anomaly][:SHOWN]]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        number, text = '<td style="text-align:right">{:,}</td>', '<td style="text-align:left">{}</td>'
        rows = [(text.format(name) + number.format(n) + text.format("")) for name, n in self._numbers()]
        for anomaly in self._found():
            words = "<br>".join([f"<i>{escape(anomaly.meaning)}</i>", *map(escape, self.examples[anomaly][:SHOWN])])
            rows.append(text.format(anomaly.name) + number.format(self.counts[anomaly]) + text.format(words))
        caption = f"audit: {badge(self.verdict)}" + (f" ({escape(self.reason)})" if self.reason else "")
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f'<table><caption style="text-align:left">{caption}</caption><tbody>{body}</tbody></table>'

    def _numbers(self) -> list[tuple[str, int]]:
        names = ("expected", "delivered", "observed", "duplicated", "lost")
        return [(name, getattr(self, name)) for name in names]

    def _found(self) -> list[Anomaly]:
        return [anomaly for anomaly in Anomaly if self.counts[anomaly]]
