"""A recording of the room: its state as it changed, to be played back by the same view.

    recording.json: {"version": 1, "title", "stage", "seconds", "frames": [[time, {key: value}], ...]}

The first frame is the complete state; to see any moment, apply the frames up to it. Guarantee: bounded: what is more
than FRAMES is thinned, the oldest and the newest alike, so that a long session has fewer frames a second.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from labs.room.shape import NUMBER, TEXT, WHOLE, fits, trouble
from labs.room.state import KEYS, State, empty_state

VERSION = 1
FRAMES = 2_000
GAP = 0.2  # seconds between two frames at first
FILE = "recording.json"
HEAD: dict[str, Any] = {"version": WHOLE, "title": TEXT, "stage": TEXT, "seconds": NUMBER, "frames": list}

# When, and the changes as compressed JSON: as Python's objects they would be 20 times as large.
Frame = tuple[float, bytes]


class RecordingError(ValueError):
    """The folder holds no recording that can be played back."""


class Recorder:
    """Keeps the changes that it is told, as frames at least `gap` seconds apart."""

    def __init__(self, first: State, most: int = FRAMES, gap: float = GAP):
        self._frames: list[Frame] = [(float(first["time"]), _packed(first))]
        self._most, self._gap, self._lock = most, gap, threading.Lock()
        self._last = float(first["time"])

    def record(self, changed: State) -> None:
        """Take note of what has changed; `time` is when."""
        with self._lock:
            time = self._last = float(changed.get("time", self._last))
            if len(self._frames) > 1 and time - self._frames[-2][0] < self._gap:
                earlier = _unpacked(self._frames.pop()[1])
                self._frames.append((time, _packed({**earlier, **changed})))
            else:
                self._frames.append((time, _packed(changed)))
            if len(self._frames) > self._most:
                self._thin()

    def recording(self, title: str) -> dict[str, Any]:
        """Return what recording.json is to hold."""
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
        """Make one frame of two, and be content with fewer from now on."""
        first, *others = self._frames
        pairs = [others[at : at + 2] for at in range(0, len(others), 2)]
        self._frames = [first, *((pair[-1][0], _merged([frame for _, frame in pair])) for pair in pairs)]
        self._gap *= 2


def _packed(frame: State) -> bytes:
    return zlib.compress(json.dumps(frame, separators=(",", ":")).encode(), 1)


def _unpacked(frame: bytes) -> State:
    return json.loads(zlib.decompress(frame))


def _merged(frames: list[bytes]) -> bytes:
    return _packed({key: value for frame in frames for key, value in _unpacked(frame).items()})


def states(recording: Mapping[str, Any]) -> Iterator[tuple[float, State]]:
    """Yield the time of each frame, and the state from then on."""
    state = empty_state()
    for time, changed in recording["frames"]:
        state = {**state, **changed}
        yield time, state


def write_recording(recording: dict[str, Any], folder: Path) -> None:
    """Write recording.json into the folder. Raises OSError."""
    (folder / FILE).write_text(json.dumps(recording, separators=(",", ":"), ensure_ascii=False) + "\n", "utf-8")


def load_recording(folder: str | Path) -> dict[str, Any]:
    """Read the recording of a folder, or of a file. Raises RecordingError."""
    path = Path(folder)
    file = path / FILE if path.is_dir() else path
    try:
        recording = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise RecordingError(
            f"{file} cannot be read: {error.strerror}; expected what the room's `save` wrote"
        ) from None
    except (ValueError, RecursionError) as error:
        raise RecordingError(f"{file} is no JSON: {error}") from None
    if fault := _fault(recording):
        raise RecordingError(f"{file} is no recording of the room: {fault}")
    return recording


def _fault(recording: Any) -> str:
    if not isinstance(recording, dict):
        return "it is no object"
    for name, kind in HEAD.items():
        if not fits(recording.get(name), kind):
            return f"{name} is {recording.get(name)!r:.40}"
    if recording["version"] != VERSION:
        return f"its version is {recording['version']}, and this lab plays version {VERSION}"
    last = float("-inf")
    for number, frame in enumerate(recording["frames"]):
        if not (isinstance(frame, list) and len(frame) == 2 and fits(frame[0], NUMBER)):
            return f"frame {number} is no [time, changes]"
        if not isinstance(frame[1], dict) or frame[0] < last:
            return f"frame {number} is out of order, or holds no changes"
        if fault := trouble(frame[1]):
            return f"frame {number} has {fault}"
        last = frame[0]
    missing = set(KEYS) - (recording["frames"][0][1].keys() if recording["frames"] else set())
    return f"its first frame lacks {sorted(missing)[0]!r}" if missing else ""
