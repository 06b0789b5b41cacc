"""The outcome of an audit: a verdict, the numbers behind it, and the first anomalies in words."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from html import escape
from typing import Any

from labs.evidence.auditor.anomaly import Anomaly, Fate, Verdict


@dataclass(frozen=True, kw_only=True, repr=False)
class Audit:
    """What an audit found.

    Always: observed = distinct results + duplicated. A result is a window and IP, a record is one copy of it.
    """

    verdict: Verdict
    expected: int  # results
    observed: int  # records read
    counts: Counter[Anomaly]  # only what was found; 0 for the rest
    examples: dict[Anomaly, list[str]]  # the first three of each
    by_window: dict[Fate, Counter[int]]  # window start in epoch milliseconds -> how many
    judged: frozenset[Anomaly]  # what the evidence was sufficient to find
    reason: str = ""  # why the verdict is unknown, or what else stands in its way

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

    def __bool__(self) -> bool:
        raise TypeError("an audit is neither true nor false: ask audit.valid, or compare audit.verdict")

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; anomalies go by name, only those found."""
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
            lines += [f"    {example}" for example in self.examples[anomaly]]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        number, text = '<td style="text-align:right">{:,}</td>', '<td style="text-align:left">{}</td>'
        rows = [(text.format(name) + number.format(n) + text.format("")) for name, n in self._numbers()]
        for anomaly in self._found():
            words = "<br>".join([f"<i>{escape(anomaly.meaning)}</i>", *map(escape, self.examples[anomaly])])
            rows.append(text.format(anomaly.name) + number.format(self.counts[anomaly]) + text.format(words))
        caption = f"audit: <b>{self.verdict}</b>" + (f" ({escape(self.reason)})" if self.reason else "")
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f'<table><caption style="text-align:left">{caption}</caption><tbody>{body}</tbody></table>'

    def _numbers(self) -> list[tuple[str, int]]:
        names = ("expected", "delivered", "observed", "duplicated", "lost")
        return [(name, getattr(self, name)) for name in names]

    def _found(self) -> list[Anomaly]:
        return [anomaly for anomaly in Anomaly if self.counts[anomaly]]
