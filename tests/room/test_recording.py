"""A recording is bounded, begins with the complete state, and is refused in words if it is something else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from labs.room.picture import moving_picture
from labs.room.published import RECORDINGS as PUBLISHED
from labs.room.published import recording_page
from labs.room.recording import (
    COUNTS,
    SHAPES,
    FolderError,
    Recorder,
    RecordingError,
    load_recording,
    save,
    write_recording,
)
from labs.room.state import KEYS, changes, empty_state
from labs.room.widget import RoomView

RECORDINGS = Path(__file__).parents[2] / PUBLISHED


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


def entry(offset: int, state: str) -> dict[str, Any]:
    plain = {"producer": None, "epoch": None, "batch": None, "window": None, "ip": None, "count": None, "copy": False}
    return {"offset": offset, "kind": "row", "state": state, **plain}


@pytest.mark.parametrize("gap", [0.2, 0.4, 1.6])
@pytest.mark.parametrize("most", [5, 2_000])
def test_a_burst_of_records_and_its_commit_are_in_a_recording_whatever_frames_are_merged(gap, most):
    """The room tells of a burst once, and then of the newest records; and again once when they are committed."""
    recorder = Recorder(empty_state(), most, gap)
    open_, committed = ([entry(offset, state) for offset in range(150)] for state in ("open", "committed"))
    for tick in range(100):
        entries = {20: open_, 22: committed}.get(tick, (open_ if tick < 22 else committed)[-48:] if tick > 20 else [])
        recorder.record({"time": tick / 10, "log": {"end": len(entries), "stable": 0, "entries": entries}})
    seen: dict[int, str] = {}
    for _, frame in recorder.recording("a burst")["frames"]:
        seen |= {each["offset"]: each["state"] for each in frame["log"]["entries"]}
    assert seen == dict.fromkeys(range(150), "committed")


def test_the_log_of_a_new_act_is_not_mixed_with_that_of_the_last():
    recorder = Recorder(empty_state(), gap=60)
    log = {"end": 9, "stable": 9, "entries": [entry(8, "committed")]}
    recorder.record({"time": 0.1, "log": log})
    recorder.record({"time": 0.2, "log": log})
    act = {"stage": {**empty_state()["stage"], "act": 2}}
    recorder.record({"time": 0.3, "log": {"end": 1, "stable": 1, "entries": [entry(0, "open")]}, **act})
    assert recorder.recording("two acts")["frames"][-1][1]["log"]["entries"] == [entry(0, "open")]


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
GOOD = {"version": 3, "title": "t", "stage": "s", "seconds": 1, "frames": [FRAME]}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "it is not an object"),
        ({**GOOD, "version": 2}, "its version is 2"),
        ({**GOOD, "title": None}, "title is None"),
        ({**GOOD, "title": "\ud800"}, "title is '\\\\ud800'"),
        ({**GOOD, "version": True}, "version is True"),
        ({**GOOD, "seconds": float("nan")}, "seconds is nan"),
        pytest.param("[" * 100_000, "is not JSON", id="deep"),
        ({**GOOD, "frames": [[float("inf"), empty_state()]]}, "frame 0 is not"),
        ({**GOOD, "frames": [[10**400, empty_state()]]}, "frame 0 is not"),
        ({**GOOD, "frames": []}, "first frame lacks"),
        ({**GOOD, "frames": [[0.0, {"time": 0}]]}, "first frame lacks 'batches'"),
        ({**GOOD, "frames": [FRAME, [1.0]]}, "frame 1 is not"),
        ({**GOOD, "frames": [FRAME, [2.0, {}], [1.0, {}]]}, "frame 2 is out of order"),
        ({**GOOD, "frames": [FRAME, [2.0, {"weather": 1}]]}, "unknown key 'weather'"),
    ],
)
def test_what_is_no_recording_is_refused_and_says_why(tmp_path, content, said):
    (tmp_path / "recording.json").write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(RecordingError, match=said):
        load_recording(tmp_path)


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return the state of a room in use, of which one value is another, or is not there."""
    state = empty_state()
    entry = {"offset": 0, "kind": "row", "state": "open", "producer": 1, "epoch": 0, "batch": 0, "window": "", "ip": ""}
    state["log"]["entries"] = [{**entry, "count": 1, "copy": False}]
    state["batches"] = [{"number": 0, "state": "noted", "driver": None, "runs": 1}]
    state["drivers"] = [{"number": 1, "state": "working", "batch": 0, "epoch": None}]
    state["brokers"] = [{"number": 1, "state": "running"}]
    state["chronicle"] = [{"number": 1, "time": 1.0, "strike": "finish", "words": "w", "consequence": ""}]
    state["report"] = {**{name: 0 for name in COUNTS}, "verdict": "valid", "why": ""}
    state["marker"] = {"batch": 0, "epoch": None}
    *names, last = [int(name) if name.isdigit() else name for name in path.split(".")]
    part: Any = state
    for name in names:
        part = part[name]
    if value is GONE:
        del part[last]
    else:
        part[last] = value
    return state


GONE = object()
ODD = {
    "time": "soon",
    "stage.name": GONE,
    "stage.names": "one",
    "log.entries.0.kind": "letter",
    "log.entries.0.state": None,
    "log.entries.0.count": 1.5,
    "log.entries.0.ip": 7,
    "log.entries.0.copy": GONE,
    "log.entries": {"0": 1},
    "log.end": 10**30,
    "log.stable": True,
    "batches.0.state": "lost",
    "batches.0.runs": None,
    "drivers.0.state": [],
    "drivers.0.number": GONE,
    "brokers.0": "running",
    "verdict.word": "perhaps",
    "verdict.lost": "0",
    "chronicle.0.time": None,
    "chronicle.0.words": None,
    "chronicle.0.consequence": "\ud800",
    "report.verdict": "passed",
    "report": [],
    "marker": 3,
    "readers": None,
    "network.hold": "perhaps",
    "possible": [1],
    "message": {},
}


@pytest.mark.parametrize("path", ODD)
def test_odd_part_of_a_state_is_named_before_it_is_drawn(tmp_path, path):
    assert load(tmp_path, changed("message", "as it should be"))
    with pytest.raises(RecordingError, match=rf"frame 0 has {path.split('.')[0]}") as refused:
        load(tmp_path, changed(path, ODD[path]))
    assert str(refused.value).isprintable()


def load(folder, state: dict[str, Any]) -> dict[str, Any]:
    (folder / "recording.json").write_text(json.dumps({**GOOD, "frames": [[0.0, state]]}))
    return load_recording(folder)


@pytest.mark.parametrize(
    "text", ["\x00\x1b[31m", "\ufffe\uffff", "a < b & c > d ]]>", "\u202eabc", pytest.param("x" * 1_000_000, id="long")]
)
def test_whatever_a_text_says_it_is_drawn(tmp_path, text):
    for path in ("chronicle.0.words", "chronicle.0.consequence", "stage.name", "verdict.why", "log.entries.0.ip"):
        recording = load(tmp_path, changed(path, text))
        view = RoomView(recording=recording)
        ElementTree.fromstring(view.still())
        ElementTree.fromstring(moving_picture(recording, pictures=2))
        assert view.as_html()


@pytest.mark.parametrize("file", sorted(RECORDINGS.glob("*.json")), ids=lambda file: file.stem)
def test_published_recordings_can_be_played(file):
    assert load_recording(file)["frames"]


def test_a_saved_session_is_also_a_page_that_plays_it(tmp_path):
    folder = save(str(tmp_path / "session"), GOOD, [], None)
    assert (folder / "room.html").read_text("utf-8") == recording_page(load_recording(folder))


def test_a_folder_without_one_is_refused(tmp_path):
    with pytest.raises(RecordingError, match="cannot be read"):
        load_recording(tmp_path)


def test_every_part_of_a_state_has_a_shape():
    assert SHAPES.keys() == set(KEYS)


def test_changes_are_whole_values_of_what_is_different():
    old, new = empty_state(), {**empty_state(), "time": 1.0, "network": {"cut": True, "hold": "", "held_epoch": None}}
    assert changes(old, new) == {"time": 1.0, "network": new["network"]}
    assert changes(new, new) == {}


@pytest.mark.parametrize("name", ["/dev/null/x", "a\x00b", "~nobody-of-this-name/x", "x" * 300])
def test_a_folder_that_cannot_be_made_is_one_line_without_a_number(name):
    with pytest.raises(FolderError, match=r"cannot be made .*; name a new folder where you may write") as refused:
        save(name, {}, [], None)
    assert "Errno" not in str(refused.value)
    assert str(refused.value).isprintable()
