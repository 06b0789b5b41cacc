"""The glossary: one heading level, in order, short entries that name the lesson where the thing is shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "glossary.md"
TERMS = """at-least-once at-most-once exactly-once offset partition log batch micro-batch batch-id checkpoint
    offset-log commit-log state-store watermark event-time window late-data append-mode idempotent-producer producer-id
    sequence-number acknowledgement transaction transactional-id transaction-coordinator transaction-log epoch fencing
    zombie commit-marker control-record last-stable-offset read_committed marker batch-marker two-phase-commit prepare
    manifest sink source replayable-source consumer-group lag supervisor fault-point auditor schedule counterexample
    barrier executor foreachbatch isolation-level replica compacted-topic savepoint"""

_SHOWN = re.compile(r"\*(?:From l|L)essons? (\d\d)[^*]*\*$")
LAST_LESSON = 18


def entries(page: str) -> dict[str, str]:
    """Return each heading of the third level with its text."""
    parts = re.split(r"^### +(.+)$", page, flags=re.MULTILINE)
    return {term: " ".join(text.split()) for term, text in zip(parts[1::2], parts[2::2], strict=True)}


def findings(page: str) -> Iterator[str]:
    """Yield what is wrong with a glossary, one line each."""
    terms = entries(page)
    if extra := [line for line in re.findall(r"^#+ .+", page, re.MULTILINE)[1:] if not line.startswith("### ")]:
        yield f"another level: {extra[0]}"
    names = [term.lower() for term in terms]
    yield from (f"{after} stands after {before}" for before, after in pairwise(names) if after < before)
    anchors = {re.sub(r"[^\w\- ]", "", name).replace(" ", "-") for name in names}
    anchors |= set(re.findall(r'<a id="([^"]+)"></a>', page))
    yield from (f"{term} is missing" for term in TERMS.split() if term not in anchors)
    yield from (f"{link} leads nowhere" for link in re.findall(r"\]\(#([^)]+)\)", page) if link not in anchors)
    for term, text in terms.items():
        shown = _SHOWN.search(text)
        if not shown:
            yield f"{term} does not end with the lessons that show it"
            continue
        if any(int(number) > LAST_LESSON for number in re.findall(r"\b\d\d\b", shown[0])):
            yield f"{term} is shown in a lesson that there is not"
        sentences = len(re.findall(r"[.?](?= |$)", text[: shown.start()].strip()))
        if not 2 <= sentences <= 4:
            yield f"{term} has {sentences} sentences"
        if len(text.split()) > 90:
            yield f"{term} has {len(text.split())} words"


def test_glossary_is_in_order_and_whole():
    assert list(findings(PAGE.read_text())) == []


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        ("### Zombie", "### A zombie", "a zombie stands after window"),
        ("### Lag\n", "#### Lag\n", "another level"),
        ("### Lag\n", "### Arrears\n", "lag is missing"),
        ("(#fencing)", "(#fence)", "fence leads nowhere"),
        ("*Lesson 09.*", "", "Prepare does not end"),
        ("*Lesson 09.*", "*Lesson 70.*", "in a lesson that there is not"),
    ],
)
def test_spoiled_glossary_is_found(old, new, finding):
    assert finding in "\n".join(findings(PAGE.read_text().replace(old, new)))
