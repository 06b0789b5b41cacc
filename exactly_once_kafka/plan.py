"""The plan of a batch: from which offset to which it reads each source, its watermark, and when it was planned.

Spark plans a batch once, writes the plan to `offsets/N` in the checkpoint, and repeats the batch by that plan. So two
batches N of one query are the same batch if their plans are equal. If a checkpoint lost its last batch, Spark plans
another batch under the same number.

The plan includes the time of planning, since equal offsets can mean different rows: timeouts and `current_timestamp()`
depend on that time, and the offsets of Spark's file source are only numbers, which stand for other files when the batch
is planned again. It leaves out the configuration in `offsets/N`, which an operator may change.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

LONGEST = 4000  # characters: each batch's marker holds a plan, and that of a source with 1,000 partitions has 20 kB
SHOWN = 300  # characters of a plan in a message
PLANNED = "planned_ms"


def plan_of(entry: str) -> str:
    """Return the plan in an entry of Spark's offset log (the text of `offsets/N`), as `spelled` returns it.

    Raises ValueError if the text is not such an entry.
    """
    version, *lines = entry.splitlines() or [""]
    metadata = _parsed(lines[0] or "{}") if lines else None
    if not (version.startswith("v") and isinstance(metadata, dict)):
        raise ValueError(f"this is no entry of an offset log: {entry[:60]!r}")
    offsets = [_parsed(line) for line in lines[1:]]
    timeless = _shortened({"offsets": offsets, "watermark_ms": metadata.get("batchWatermarkMs", 0)})
    return spelled(timeless | {PLANNED: metadata.get("batchTimestampMs", 0)})


def spelled(plan: Any) -> str:
    """Return the plan as JSON with sorted keys and no spaces, so that equal plans are equal strings."""
    return json.dumps(plan, sort_keys=True, separators=(",", ":"))


def planned_ms(plan: str | None) -> int | None:
    """Return when the batch was planned, in milliseconds since 1970; None if the plan does not say it."""
    return _fields(plan).get(PLANNED) or None


def is_copy(plan: str | None, other: str | None) -> bool:
    """Tell whether one plan is a copy of the other: they are equal, and say when the batch was planned.

    Equal plans are copies, because Spark never plans two batches in the same millisecond. Spark copies an entry of its
    offset log when it repartitions the state of a query (`streamingCheckpointManager().repartition`, Spark
    4.2): that batch reads nothing, and Spark commits it without calling a sink.
    """
    return plan == other and planned_ms(plan) is not None


def goes_back(plan: str | None, committed: str | None, same_query: bool = True) -> bool:
    """Tell whether a query that continues after `plan` reads again, or may read again, what `committed` has read.

    The query does so if an offset of `plan` is lower. If one query made both plans, it also does so if `plan` is older,
    or lacks a partition of `committed`. It may do so if one of the plans was shortened: then return True. If one of
    them is not a plan, such as an operator's "adopted", return False.
    """
    ours, theirs = _fields(plan), _fields(committed)
    if not (ours and theirs) or plan == committed:
        return False
    if same_query and PLANNED in ours and ours[PLANNED] < theirs.get(PLANNED, 0):
        return True
    if _without_time(ours) == _without_time(theirs):
        return False
    if "offsets" not in ours or "offsets" not in theirs:
        return "sha256" in ours or "sha256" in theirs
    pairs = zip(ours["offsets"], theirs["offsets"], strict=False)
    return any(_is_lower(_offset(one), _offset(other), same_query) for one, other in pairs)


def shown(plan: str | None, other: str | None) -> str:
    """Return the plan for a message: if it is long, the part around its first difference from the other."""
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


def _fields(plan: str | None) -> dict[str, Any]:
    fields = _parsed(plan or "")
    return fields if isinstance(fields, dict) else {}


def _without_time(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key != PLANNED}


def _shortened(plan: dict[str, Any]) -> dict[str, Any]:
    """Return the plan; for a long one, its beginning and its checksum, so that different plans stay different."""
    text = spelled(plan)
    if len(text) <= LONGEST:
        return plan
    return {"begins": text[: LONGEST // 2], "sha256": hashlib.sha256(text.encode()).hexdigest()}


def _offset(offset: Any) -> Any:
    """Return a source's offset without the source's name, which version 2 of the offset log puts first: `0:{…}`."""
    if isinstance(offset, str):
        name, colon, text = offset.partition(":")
        return _parsed(text) if colon and "{" not in name else offset
    return offset


def _is_lower(offset: Any, other: Any, all_of_it: bool) -> bool:
    """Tell whether the offset, or that of a partition in it, is lower than in `other`.

    With `all_of_it`, a partition that only `other` has counts as lower, too.
    """
    if isinstance(offset, dict) and isinstance(other, dict):
        missing = all_of_it and bool(other.keys() - offset.keys())
        both = offset.keys() & other.keys()
        return missing or any(_is_lower(offset[key], other[key], all_of_it) for key in both)
    return isinstance(offset, int) and isinstance(other, int) and offset < other
