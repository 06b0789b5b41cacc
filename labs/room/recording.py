"""A recording of the room: its state as it changed, for the same view to play back; and a session saved as a folder.

    recording.json   {"version": 3, "title", "stage", "seconds", "frames": [[time, {key: value}], ...]}
    schedule.json    the strikes, in their order: [{"time", "do", and the order's arguments}]
    audit.json       the auditor's verdict, or null
    room.html        a page that plays the recording in any browser, to hand on

The first frame is the complete state; to get the state at a moment, apply the frames up to it. Guarantee: a recording
has at most FRAMES frames. In a longer session pairs of frames are merged, old and new alike, so that it has fewer
frames a second.

`load_recording` checks the types of all parts. It accepts any numbers and texts: a recording of the right types can be
drawn, in the browser and as a picture, even if it makes no sense.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import zlib
from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

from labs.evidence.auditor.audit import Audit
from labs.room.published import recording_page
from labs.room.state import (
    BATCHES,
    BROKERS,
    DRIVERS,
    ENTRIES,
    EVIDENCE,
    KEYS,
    LONGEST_BURST,
    VERDICTS,
    State,
    empty_state,
)

LARGEST = 2**53  # beyond it, not every whole number can be represented in JavaScript
WHOLE, NUMBER, TEXT, FLAG = int, float, str, bool


class OrNone:
    """The shape of a value that may also be null."""

    def __init__(self, shape: Any):
        self.shape = shape


ANY_WHOLE = OrNone(WHOLE)
COUNTS = dict.fromkeys(("expected", "delivered", "lost", "duplicated", "conflicting", "torn"), WHOLE)
ENTRY = {
    "offset": WHOLE,
    "kind": {"row", "commit", "abort", "other"},
    "state": set(ENTRIES) - {"commit", "abort"},
    "producer": ANY_WHOLE,
    "epoch": ANY_WHOLE,
    "batch": ANY_WHOLE,
    "window": OrNone(TEXT),
    "ip": OrNone(TEXT),
    "count": ANY_WHOLE,
    "copy": FLAG,
}
# A shape is a type, a set of the possible texts, a dictionary of key -> shape, or a list of one shape.
SHAPES: dict[str, Any] = {
    "time": NUMBER,
    "stage": {"name": TEXT, "names": [TEXT], "act": WHOLE},
    "traffic": {"on": FLAG, "rate": NUMBER, "sent": WHOLE, "per_second": NUMBER},
    "counted": {"records": WHOLE, "per_second": NUMBER, "behind": WHOLE},
    "batches": [{"number": WHOLE, "state": set(BATCHES), "driver": ANY_WHOLE, "runs": WHOLE}],
    "drivers": [{"number": WHOLE, "state": set(DRIVERS), "batch": ANY_WHOLE, "epoch": ANY_WHOLE}],
    "spare": FLAG,
    "brokers": [{"number": WHOLE, "state": set(BROKERS)}],
    "executors": {"wanted": WHOLE, "running": WHOLE},
    "network": {"cut": FLAG, "hold": {"", "waiting", "held"}, "held_epoch": ANY_WHOLE},
    "log": {"end": WHOLE, "stable": WHOLE, "entries": [ENTRY]},
    "marker": OrNone({"batch": WHOLE, "epoch": ANY_WHOLE}),
    "readers": {"committed": WHOLE, "uncommitted": WHOLE},
    "verdict": {**COUNTS, "word": set(VERDICTS), "awaited": WHOLE, "why": TEXT},
    "evidence": [{"kind": set(EVIDENCE), "words": TEXT, "entries": [ENTRY]}],
    "waiting": TEXT,
    "chronicle": [{"number": WHOLE, "time": NUMBER, "strike": TEXT, "words": TEXT, "consequence": TEXT}],
    "possible": [TEXT],
    "message": TEXT,
    "report": OrNone({**COUNTS, "verdict": set(VERDICTS), "why": TEXT}),
}


def trouble(changes: dict[str, Any]) -> str:
    """Return what is wrong with a part of a state, in a few words, or "" if it fits."""
    for key, value in changes.items():
        if key not in SHAPES:
            return f"the unknown key {key!r:.60}"
        for fault in _faults(key, value, SHAPES[key]):
            return fault
    return ""


def _faults(name: str, value: Any, shape: Any) -> Iterator[str]:
    if isinstance(shape, OrNone):
        if value is not None:
            yield from _faults(name, value, shape.shape)
    elif isinstance(shape, dict):
        if not isinstance(value, dict):
            yield f"{name} is {value!r:.60}, and not an object"
            return
        for key in sorted(shape.keys() - value.keys()):
            yield f"{name} lacks {key!r}"
        for key in shape:
            yield from _faults(f"{name}.{key}", value.get(key), shape[key])
    elif isinstance(shape, list):
        if not isinstance(value, list):
            yield f"{name} is {value!r:.60}, and not a list"
            return
        for n, each in enumerate(value):
            yield from _faults(f"{name}[{n}]", each, shape[0])
    elif not fits(value, shape):
        wanted = f"one of {', '.join(map(repr, sorted(shape)))}" if isinstance(shape, set) else NAMES[shape]
        yield f"{name} is {value!r:.60}, and should be {wanted}"


NAMES = {WHOLE: "a whole number", NUMBER: "a number", TEXT: "a text", FLAG: "true or false"}


def fits(value: Any, shape: Any) -> bool:
    """Tell whether a value has the type `shape`, or is one of the texts in the set `shape`."""
    if isinstance(shape, set):
        return isinstance(value, str) and value in shape
    if shape in (NUMBER, WHOLE):  # false for NaN and the infinities, too
        return type(value) in (shape, WHOLE) and abs(value) <= LARGEST
    if shape is TEXT:  # a surrogate without its pair cannot be sent to a browser
        return isinstance(value, str) and not any("\ud800" <= c <= "\udfff" for c in value)
    return type(value) is shape


VERSION = 3
FRAMES = 2_000
GAP = 0.2  # seconds between two frames at first
FILE, PLAYED = "recording.json", "room.html"
HEAD: dict[str, Any] = {"version": WHOLE, "title": TEXT, "stage": TEXT, "seconds": NUMBER, "frames": list}

# The time, and the changes as compressed JSON: as Python objects they would be 20 times as large.
Frame = tuple[float, bytes]


class RecordingError(ValueError):
    """The folder holds no recording that can be played back."""


class FolderError(ValueError):
    """A session cannot be saved in this folder."""


class Recorder:
    """Keeps the changes of a state as frames at least `gap` seconds apart, and at most `most` of them."""

    def __init__(self, first: State, most: int = FRAMES, gap: float = GAP):
        self._frames: list[Frame] = [(float(first["time"]), _packed(first))]
        self._most, self._gap, self._lock = most, gap, threading.Lock()
        self._last = float(first["time"])

    def record(self, changed: State) -> None:
        """Add a change; its `time` is the moment."""
        with self._lock:
            time = self._last = float(changed.get("time", self._last))
            if len(self._frames) > 1 and time - self._frames[-2][0] < self._gap:
                earlier = _unpacked(self._frames.pop()[1])
                self._frames.append((time, _packed(_joined(earlier, changed))))
            else:
                self._frames.append((time, _packed(changed)))
            if len(self._frames) > self._most:
                self._thin()

    def recording(self, title: str) -> dict[str, Any]:
        """Return the content of recording.json."""
        with self._lock:
            frames = [(time, _unpacked(frame)) for time, frame in self._frames]
            seconds = round(self._last - self._frames[0][0], 1)
        return {
            "version": VERSION,
            "title": title,
            "stage": [frame["stage"]["name"] for _, frame in frames if "stage" in frame][-1],
            "seconds": seconds,
            "frames": [[round(time, 2), frame] for time, frame in frames],
        }

    def _thin(self) -> None:
        """Merge frames in pairs, and keep half as many a second from now on."""
        first, *others = self._frames
        pairs = [others[at : at + 2] for at in range(0, len(others), 2)]
        self._frames = [first, *((pair[-1][0], _merged([frame for _, frame in pair])) for pair in pairs)]
        self._gap *= 2


def _packed(frame: State) -> bytes:
    return zlib.compress(json.dumps(frame, separators=(",", ":")).encode(), 1)


def _unpacked(frame: bytes) -> State:
    return json.loads(zlib.decompress(frame))


def _merged(frames: list[bytes]) -> bytes:
    return _packed(reduce(_joined, map(_unpacked, frames)))


def _joined(earlier: State, later: State) -> State:
    """Return two changes as one. A `log` has the newest entries and those that changed, so that both logs are kept."""
    both = {**earlier, **later}
    if "log" in earlier and "log" in later and "stage" not in later:  # a new act has a log of its own
        entries = {each["offset"]: each for each in (*earlier["log"]["entries"], *later["log"]["entries"])}
        both["log"] = {**later["log"], "entries": [entries[at] for at in sorted(entries)][-LONGEST_BURST:]}
    return both


def states(recording: Mapping[str, Any]) -> Iterator[tuple[float, State]]:
    """Yield the time of each frame, and the state from then on."""
    state = empty_state()
    for time, changed in recording["frames"]:
        state = {**state, **changed}
        yield time, state


def write_recording(recording: dict[str, Any], folder: Path) -> None:
    """Write recording.json into the folder. Raises OSError."""
    (folder / FILE).write_text(json.dumps(recording, separators=(",", ":"), ensure_ascii=False) + "\n", "utf-8")


def write_page(recording: Mapping[str, Any], folder: Path) -> Path:
    """Write the page that plays the recording into the folder, and return its path. Raises OSError."""
    page = folder / PLAYED
    page.write_text(recording_page(recording), "utf-8")
    return page


def load_recording(folder: str | Path) -> dict[str, Any]:
    """Read the recording of a folder, or of a file. Raises RecordingError."""
    path = Path(folder)
    file = path / FILE if path.is_dir() else path
    try:
        recording = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise RecordingError(
            f"{file} cannot be read: {error.strerror}; expected a folder that the room's `save` wrote"
        ) from None
    except (ValueError, RecursionError) as error:
        raise RecordingError(f"{file} is not JSON: {error}") from None
    if fault := _fault(recording):
        raise RecordingError(f"{file} is not a recording of the room: {fault}")
    return recording


def _fault(recording: Any) -> str:
    if not isinstance(recording, dict):
        return "it is not an object"
    for name, kind in HEAD.items():
        if not fits(recording.get(name), kind):
            return f"{name} is {recording.get(name)!r:.40}"
    if recording["version"] != VERSION:
        return f"its version is {recording['version']}, and this lab plays version {VERSION}: record it anew"
    last = float("-inf")
    for number, frame in enumerate(recording["frames"]):
        if not (isinstance(frame, list) and len(frame) == 2 and fits(frame[0], NUMBER)):
            return f"frame {number} is not [time, changes]"
        if not isinstance(frame[1], dict) or frame[0] < last:
            return f"frame {number} is out of order, or holds no changes"
        if fault := trouble(frame[1]):
            return f"frame {number} has {fault}"
        last = frame[0]
    missing = set(KEYS) - (recording["frames"][0][1].keys() if recording["frames"] else set())
    return f"its first frame lacks {sorted(missing)[0]!r}" if missing else ""


def save(name: str, recording: dict[str, Any], strikes: list[dict[str, Any]], audit: Audit | None) -> Path:
    """Write the folder, and return it: see the top of this module. Raises FolderError, OSError."""
    path = _folder(name)
    judged = audit.as_dict() if audit is not None else None
    write_recording(recording, path)
    write_page(recording, path)
    (path / "schedule.json").write_text(json.dumps(strikes, indent=1) + "\n")
    (path / "audit.json").write_text(json.dumps(judged, indent=1) + "\n")
    return path


def _folder(name: str) -> Path:
    """Return a folder that is to be written, as an absolute path.

    Raises FolderError if it is not empty, or cannot be made or written to.
    """
    try:
        path = Path(name).expanduser().absolute()
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise FolderError(f"save: {path} is not an empty folder; choose another one")
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except FolderError:
        raise
    except (OSError, ValueError, RuntimeError) as error:  # such as a NUL in the name, or the home of an unknown user
        why = (error.strerror if isinstance(error, OSError) else "") or str(error)
        raise FolderError(
            f"save: the folder {name!r:.200} cannot be made ({why.lower()}); name a new folder where you may write"
        ) from None
    return path
