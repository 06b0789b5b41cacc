"""The plan of a batch: from which offset to which it reads each source, its watermark, and when it was planned.

Spark plans a batch once, writes the plan to `offsets/N` in the checkpoint, and repeats the batch by that plan. So two
batches N of one query are the same batch if their plans are equal. If a checkpoint lost its last batch, Spark plans
another one.

The plan includes the time of planning, since equal offsets can mean different rows: timeouts and `current_timestamp()`
depend on that time, and the offsets of Spark's file source are only numbers, which stand for other files when the batch
is planned again. It leaves out the configuration in `offsets/N`, which an operator may change.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

LONGEST = 4000  # characters: a source of a thousand partitions has a plan of 20 kB, and each batch's marker holds one
SHOWN = 300  # characters of a plan in a message
PLANNED = "planned_ms"


def plan_of(entry: str) -> str:
    """Return the plan in an entry of Spark's offset log (the text of `offsets/N`) as JSON, always spelled the same.

    Raises ValueError.
    """
    version, *lines = entry.splitlines() or [""]
    metadata = _parsed(lines[0] or "{}") if lines else None
    if not (version.startswith("v") and isinstance(metadata, dict)):
        raise ValueError(f"this is no entry of an offset log: {entry[:60]!r}")
    offsets = [_parsed(line) for line in lines[1:]]
    timeless = _shortened({"offsets": offsets, "watermark_ms": metadata.get("batchWatermarkMs", 0)})
    return spelled(timeless | {PLANNED: metadata.get("batchTimestampMs", 0)})


def spelled(plan: Any) -> str:
    """Return the JSON of a plan, always spelled the same."""
    return json.dumps(plan, sort_keys=True, separators=(",", ":"))


def planned_ms(plan: str | None) -> int | None:
    """Return when the batch was planned, in epoch millis; None if the plan does not say it."""
    return _fields(plan).get(PLANNED) or None


def is_copy(plan: str | None, other: str | None) -> bool:
    """Tell whether one plan is a copy of the other: Spark never plans two batches in the same millisecond.

    Spark copies an entry when it repartitions the state of a query (`streamingCheckpointManager().repartition`, Spark
    4.2): that batch reads nothing, and Spark commits it without calling a sink.
    """
    return plan == other and planned_ms(plan) is not None


def goes_back(plan: str | None, committed: str | None, same_query: bool = True) -> bool:
    """Tell whether a query that continues after `plan` reads again, or may read again, what `committed` has read.

    It does if an offset is lower, or if the same query made `plan` earlier or without a partition of `committed`. It
    may do so if a plan was shortened. If one of them is not a plan, such as an operator's "adopted", return False.
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
    """Return the plan; of a long one its beginning and its checksum, so that different plans stay different."""
    text = spelled(plan)
    if len(text) <= LONGEST:
        return plan
    return {"begins": text[: LONGEST // 2], "sha256": hashlib.sha256(text.encode()).hexdigest()}


def _offset(offset: Any) -> Any:
    """Return a source's offset without its name, which version 2 of the offset log has in front: `0:{…}`."""
    if isinstance(offset, str):
        name, colon, text = offset.partition(":")
        return _parsed(text) if colon and "{" not in name else offset
    return offset


def _is_lower(offset: Any, other: Any, all_of_it: bool) -> bool:
    """Tell whether an offset, or a partition's in it, is lower. With `all_of_it`, a missing partition is lower, too."""
    if isinstance(offset, dict) and isinstance(other, dict):
        missing = all_of_it and bool(other.keys() - offset.keys())
        both = offset.keys() & other.keys()
        return missing or any(_is_lower(offset[key], other[key], all_of_it) for key in both)
    return isinstance(offset, int) and isinstance(other, int) and offset < other
