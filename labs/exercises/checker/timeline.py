"""The timeline of a failing run: of what the code did, only what tells why."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

LONGEST = 24  # lines
BEFORE, AFTER = 4, 3  # lines around a kill
RESTART = ("", "— the process is started again —")
GAP = ("", "…")
KILLS = ("SIGKILL ", "crash ")  # how the journal calls what the checker did


def timeline(
    events: Sequence[tuple[int, dict[str, Any]]], records: Sequence[int | str] = (), ends_badly: bool = False
) -> list[tuple[str, str]]:
    """Return (when, what) lines: around what happened to `records`, or else around each kill, and the bad end.

    A record is named by its number, "record 12", or by what the lines call it.
    """
    shown = [(run, e) for run, e in events if e["kind"] in ("call", "kill") or (e["kind"] == "end" and _bad(e))]
    names = [re.compile(rf"{f'record {each}' if isinstance(each, int) else re.escape(each)}\b") for each in records]
    about = [n for n, (_, e) in enumerate(shown) if any(name.search(e["what"]) for name in names)]
    kills = [n for n, (_, e) in enumerate(shown) if e["kind"] == "kill"]
    wanted: set[int] = set()
    for n in about:
        wanted.update(range(n - 1, n + 3))
    if about:  # the kill after the first time that the record was seen
        kills = [n for n in kills if n >= about[0]][:1] or kills[-1:]
    for n in kills:
        wanted.update(range(n - BEFORE, n + AFTER))
    if ends_badly:
        wanted.update(range(len(shown) - BEFORE - 1, len(shown)))
    if not wanted:  # nothing was killed: what matters is where one run ends and the next begins
        starts = [n for n in range(1, len(shown)) if shown[n][0] != shown[n - 1][0]]
        wanted.update(n for start in starts for n in range(start - AFTER, start + BEFORE))
    if not wanted:
        wanted.update(range(len(shown) - 2 * BEFORE, len(shown)))
    wanted = {n for n in wanted if 0 <= n < len(shown)}
    # What was killed between two lines that are shown is shown too: without it, nobody knows why there is a second run.
    wanted.update(n for n, (_, e) in enumerate(shown) if e["kind"] == "kill" and min(wanted) < n < max(wanted))
    return _lines(shown, sorted(wanted))


def _lines(shown: Sequence[tuple[int, dict[str, Any]]], chosen: list[int]) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    previous = None
    for n in chosen:
        run, event = shown[n]
        if previous is not None and shown[previous][0] != run:
            lines.append(RESTART)
        if previous is not None and n != previous + 1:
            lines.append(GAP)
        lines.append((f"run {run}, {event['when']:.2f} s", event["what"].splitlines()[0] if event["what"] else ""))
        previous = n
    if len(lines) <= LONGEST:
        return lines
    kept = lines[: LONGEST - 1]
    left_out = [shown[n][1] for n in chosen if shown[n][1]["kind"] == "kill"][sum(map(_is_kill, kept)) :]
    return [*kept, ("", f"… {len(left_out)} more of these crashes, and what follows") if left_out else GAP]


def _is_kill(line: tuple[str, str]) -> bool:
    return line[1].startswith(KILLS)


def _bad(event: dict[str, Any]) -> bool:
    return event.get("ending") != "returned"
