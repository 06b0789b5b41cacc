"""Audits and the checker's reports as tables: a lesson prints them as text, and a page has room for more.

Text around them, and text that is no such table, stays as it is.
"""

from __future__ import annotations

import re
from html import escape

from bs4 import BeautifulSoup

AUDIT = re.compile(
    r"^audit: (?P<verdict>\w+)(?P<reason> \(.*\))?\n(?P<numbers>(?:  \w+ +[\d,]+(?:\n|\Z))+)", re.MULTILINE
)
CHECK = re.compile(r"^scenario +verdict +lost +doubled +what was done *\n(?:.*\S.*(?:\n|\Z))+", re.MULTILINE)
LOOKS = {"valid": "good", "passed": "good", "invalid": "bad", "failed": "bad"}


def tabulate(soup: BeautifulSoup) -> None:
    """Replace the audits and the checker's tables in the outputs of a page by HTML tables."""
    for shown in soup.select(".output_area pre"):
        text = shown.get_text()
        parts = [(found.start(), found.end(), _of_audit(found)) for found in AUDIT.finditer(text)]
        parts += [(found.start(), found.end(), _of_check(found[0])) for found in CHECK.finditer(text)]
        if not parts:
            continue
        html, done = "", 0
        for start, end, table in sorted(parts):
            html += _as_text(text[done:start]) + table
            done = end
        shown.replace_with(BeautifulSoup(html + _as_text(text[done:]), "html.parser"))


def _as_text(text: str) -> str:
    return f"<pre>{escape(text.strip(chr(10)))}</pre>" if text.strip() else ""


def _of_audit(audit: re.Match[str]) -> str:
    rows = [line.split() for line in audit["numbers"].splitlines()]
    caption = f"audit: {_verdict(audit['verdict'])}{escape(audit['reason'] or '')}"
    return _table([name for name, _ in rows], [[number for _, number in rows]], caption)


def _of_check(table: str) -> str:
    """Return the table: its columns begin or end where their names do."""
    header, *lines = table.splitlines()
    verdict, lost, doubled, done = map(header.index, ("verdict", "lost", "doubled", "what"))
    cuts = [(0, verdict), (verdict, lost), (lost, doubled), (doubled, done), (done, None)]
    rows: list[list[str]] = []
    for line in lines:
        cells = [line[start:end].strip() for start, end in cuts]
        if cells[1] or not rows:
            rows.append(cells)
        else:  # the line above goes on
            rows[-1] = [f"{above} {more}".strip() for above, more in zip(rows[-1], cells, strict=True)]
    return _table([header[start:end].strip() for start, end in cuts], rows)


def _table(names: list[str], rows: list[list[str]], caption: str = "") -> str:
    def cell(text: str) -> str:
        kind = ' class="number"' if re.fullmatch(r"[\d,]+", text) else ""
        return f"<td{kind}>{_verdict(text) if text in LOOKS else escape(text)}</td>"

    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows)
    told = f"<caption>{caption}</caption>" if caption else ""
    return f'<table class="verdict">{told}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _verdict(word: str) -> str:
    return f'<b class="{LOOKS.get(word, "unsure")}">{escape(word)}</b>'
