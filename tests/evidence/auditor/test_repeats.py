"""Each copy of a result is put down to what brought it about: handwritten logs, one cause each."""

from __future__ import annotations

import pytest

from labs.evidence.auditor.audit import Result, count_repeats

LOST = "lost acknowledgement"


def log(*attempts: tuple[int, str, str]) -> list[Result]:
    """Make the log of attempts (batch, attempt, its results as letters)."""
    letters = [(batch, attempt, letter) for batch, attempt, results in attempts for letter in results]
    return [
        Result(0, letter, 10, batch_id=batch, attempt=attempt, partition=0, offset=n)
        for n, (batch, attempt, letter) in enumerate(letters)
    ]


@pytest.mark.parametrize(
    ("attempts", "copies"),
    [
        ([(0, "a", "xy"), (1, "b", "z")], {}),
        ([(0, "a", "xyxy")], {(LOST, 0): 2}),
        ([(0, "a", "xy"), (0, "b", "xy")], {("crash in batch 0", 0): 2}),
        ([(0, "a", "xy"), (1, "b", "z"), (1, "c", "zw")], {("crash in batch 1", 1): 1}),
        (
            [(0, "a", "xx"), (1, "b", "y"), (0, "c", "x"), (1, "d", "yz"), (1, "e", "yz")],
            {(LOST, 0): 1, ("crash in batch 1", 0): 1, ("crash in batch 1", 1): 3},
        ),
    ],
    ids=["nothing", "sent twice", "batch repeated", "half repeated", "from the beginning, and again"],
)
def test_a_copy_is_put_down_to_its_cause_and_its_batch(attempts, copies):
    assert count_repeats(log(*attempts)) == copies


def test_a_record_without_headers_is_an_error():
    with pytest.raises(ValueError, match="offset 0"):
        count_repeats([Result(0, "x", 10, partition=0, offset=0)])
