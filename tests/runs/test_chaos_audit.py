"""What the judge of a chaos run reads of the source topic."""

from __future__ import annotations

from labs.pipeline.records import CLOSING_IP
from labs.runs import chaos


def test_records_that_nobody_sent_as_accesses_are_not_counted(monkeypatch):
    records = [(0, 0, 7, "a"), (0, 1, None, None), (0, 2, 7, "a"), (0, 3, 9, CLOSING_IP), (1, 0, None, None)]
    monkeypatch.setattr(chaos, "read_source_records", lambda servers, topic: iter(records))
    assert chaos._stored("nowhere", "accesses", window_ms=5) == {(5, "a"): 2}
