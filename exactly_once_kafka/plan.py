"""The plan of a batch: from which offset to which it reads each source, and the watermark it works with.

Spark plans a batch once, writes the plan to `offsets/N` in the checkpoint, and repeats the batch by that plan. So
two batches N of one query are the same if their plans are. A checkpoint that lost its last batch has another one made.

Where it stops: a plan says what the source calls its offsets. Kafka's say which records; those of Spark's file
source are numbers, and which files they stand for is written elsewhere in the checkpoint.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

LONGEST = 4000  # characters: a source of a thousand partitions has a plan of 20 kB, and each batch's marker holds one
SHOWN = 300  # characters of a plan in a message


def plan_of(entry: str) -> str:
    """Return the plan in an entry of Spark's offset log (the text of `offsets/N`) as JSON, always spelled the same.

    When and with which configuration the batch was planned is left out. Raises ValueError.
    """
    version, *lines = entry.splitlines()
    if not (version.startswith("v") and lines):
        raise ValueError(f"this is no entry of an offset log: {entry[:60]!r}")
    metadata = json.loads(lines[0]) if lines[0] else {}
    offsets = [_parsed(line) for line in lines[1:]]
    return spelled({"offsets": offsets, "watermark_ms": metadata.get("batchWatermarkMs", 0)})


def spelled(plan: Any) -> str:
    """Return the JSON of a plan; of a long one its beginning and its checksum, which differ where the plans do."""
    text = json.dumps(plan, sort_keys=True, separators=(",", ":"))
    if len(text) <= LONGEST:
        return text
    short = {"begins": text[: LONGEST // 2], "sha256": hashlib.sha256(text.encode()).hexdigest()}
    return json.dumps(short, sort_keys=True, separators=(",", ":"))


def shown(plan: str | None, other: str | None) -> str:
    """Return the plan as a message shows it: if it is long, from shortly before it begins to differ from the other."""
    if plan is None or len(plan) <= SHOWN:
        return str(plan)
    same = next((n for n, pair in enumerate(zip(plan, other or "", strict=False)) if pair[0] != pair[1]), 0)
    start = max(0, min(same - SHOWN // 3, len(plan) - SHOWN))
    return ("…" if start else "") + plan[start : start + SHOWN] + ("…" if start + SHOWN < len(plan) else "")


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return line
