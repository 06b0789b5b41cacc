"""A recording is bounded, begins with the complete state, and is refused in words if it is something else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from labs.room.recording import Recorder, RecordingError, load_recording, write_recording
from labs.room.state import KEYS, changes, empty_state


def played(recording, until):
    """Return the state at a moment, as a player finds it."""
    state: dict[str, Any] = {}
    for time, frame in recording["frames"]:
        if time <= until:
            state |= frame
    return state


def test_any_moment_is_found_from_the_start(tmp_path):
    recorder = Recorder(empty_state(), gap=0)
    for second in range(1, 11):
        recorder.record({"time": float(second), "message": f"second {second}"})
    write_recording(recorder.recording("ten seconds"), tmp_path)
    recording = load_recording(tmp_path)
    assert recording["frames"][0][1].keys() == set(KEYS)
    assert (recording["title"], recording["seconds"], recording["stage"]) == ("ten seconds", 10.0, "+ batch marker")
    assert played(recording, 4.5)["message"] == "second 4"
    assert played(recording, 99)["message"] == "second 10"
    assert load_recording(tmp_path / "recording.json") == recording


def test_a_long_session_has_fewer_frames_a_second_and_loses_no_last_word():
    recorder = Recorder(empty_state(), most=100)
    for tick in range(1, 40_000):
        recorder.record({"time": tick / 10, "message": str(tick)})
    recording = recorder.recording("over an hour")
    assert 40 < len(recording["frames"]) <= 100
    assert recording["frames"][-1][1]["message"] == "39999"
    assert recording["frames"][0][1].keys() == set(KEYS)
    times = [time for time, _ in recording["frames"]]
    assert times == sorted(times)


def test_a_change_behind_another_one_in_the_same_frame_is_the_one_that_counts():
    recorder = Recorder(empty_state(), gap=1)
    for time, message in ((1.0, "a"), (1.1, "b"), (3.0, "c")):
        recorder.record({"time": time, "message": message})
    assert played(recorder.recording(""), 2)["message"] == "b"


def test_what_is_recorded_does_not_change_with_the_state_that_it_was_taken_from():
    state, recorder = empty_state(), Recorder(empty_state(), gap=0)
    recorder.record({"time": 1.0, "drivers": state["drivers"]})
    state["drivers"].append("later")
    assert recorder.recording("")["frames"][1][1]["drivers"] == []


FRAME = [0.0, empty_state()]
GOOD = {"version": 1, "title": "t", "stage": "s", "seconds": 1, "frames": [FRAME]}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is no JSON"),
        ("[]", "it is no object"),
        ({**GOOD, "version": 2}, "its version is 2"),
        ({**GOOD, "title": None}, "title is None"),
        ({**GOOD, "frames": []}, "first frame lacks"),
        ({**GOOD, "frames": [[0.0, {"time": 0}]]}, "first frame lacks 'batches'"),
        ({**GOOD, "frames": [FRAME, [1.0]]}, "frame 1 is no"),
        ({**GOOD, "frames": [FRAME, [2.0, {}], [1.0, {}]]}, "frame 2 is out of order"),
        ({**GOOD, "frames": [FRAME, [2.0, {"weather": 1}]]}, "unknown key 'weather'"),
    ],
)
def test_what_is_no_recording_is_refused_and_says_why(tmp_path, content, said):
    (tmp_path / "recording.json").write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(RecordingError, match=said):
        load_recording(tmp_path)


def test_a_folder_without_one_is_refused(tmp_path):
    with pytest.raises(RecordingError, match="cannot be read"):
        load_recording(tmp_path)


def test_changes_are_whole_values_of_what_is_different():
    old, new = empty_state(), {**empty_state(), "time": 1.0, "network": {"cut": True, "hold": "", "held_epoch": None}}
    assert changes(old, new) == {"time": 1.0, "network": new["network"]}
    assert changes(new, new) == {}
