"""The room's view without a browser: a trait for each key, orders, the still picture, what a published page gets."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from labs.room.orders import BROKER_STATES, DRIVER_STATES
from labs.room.orders import ORDERS as ROOMS_ORDERS
from labs.room.picture import moving_picture
from labs.room.published import HERE, PARTS, PREFIX, module, recording_script, view_script
from labs.room.recording import load_recording
from labs.room.state import DRIVERS, KEYS, ORDERS, TEXTS, empty_state, in_words, words
from labs.room.widget import LiveRoom, RoomView, first_and_last, recorded_room

ROOT = Path(__file__).parents[2]
RECORDINGS = sorted((ROOT / "docs" / "recordings").glob("*.json"))
MOST_BYTES = 1_500_000


class StubRoom:
    """Stands for a room: it says its state, and notes what it is told to do."""

    def __init__(self, **changes: Any):
        self.state = {**empty_state(), **changes}
        self.subscribers: list[Any] = []
        self.done: list[tuple[str, dict[str, Any]]] = []
        self.closed = False

    def subscribe(self, subscriber):
        self.subscribers.append(subscriber)
        return lambda: self.subscribers.remove(subscriber)

    def do(self, order: str, **arguments: Any) -> None:
        self.done.append((order, arguments))

    def tell(self, **changes: Any) -> None:
        self.state = {**self.state, **changes}
        for subscriber in self.subscribers:
            subscriber(changes)

    def close(self) -> None:
        self.closed = True


def traits_of(view: RoomView) -> dict[str, Any]:
    return {key: getattr(view, f"{PREFIX}{key}") for key in KEYS}


def test_each_key_of_the_state_is_a_trait_that_the_browser_gets():
    view = RoomView(StubRoom())
    assert traits_of(view) == empty_state()
    assert {f"{PREFIX}{key}" for key in KEYS} <= view.get_state().keys()
    [listed] = re.findall(r'const KEYS = "(.*)"\.split', module())
    assert sorted(listed.split()) == sorted(KEYS), "the browser listens to other keys"


def test_a_tick_sends_only_what_has_changed_and_all_at_once(monkeypatch):
    room = StubRoom()
    view = RoomView(room)
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(view, "_send", lambda message, buffers=None: sent.append(message))
    thread = threading.Thread(target=lambda: room.tell(time=1.5, message="a line"))
    thread.start()
    thread.join()
    states = [each["state"].keys() for each in sent if each["method"] == "update"]
    assert states == [{f"{PREFIX}time", f"{PREFIX}message"}]
    assert view.state == room.state


def test_what_changes_while_the_view_is_made_is_not_missed():
    class Hasty(StubRoom):
        def subscribe(self, subscriber):
            self.state = {**self.state, "message": "in between"}
            return super().subscribe(subscriber)

    assert RoomView(Hasty()).state["message"] == "in between"


def test_orders_reach_the_room_and_nothing_else_does():
    room = StubRoom()
    view = RoomView(room)
    for message in (
        {"do": "kill-driver", "driver": 2},
        {"do": "close"},
        {"do": "subscribe", "subscriber": 1},
        {"order": "finish"},
        "finish",
        {"do": ["finish"]},
    ):
        view._handle_custom_msg(message, [])
    assert room.done == [("kill-driver", {"driver": 2})]


def test_a_view_at_rest_gives_no_orders_and_hears_nothing():
    room = StubRoom()
    live = LiveRoom(room)  # type: ignore[arg-type]
    assert live.view.live
    live.close()
    live.close()
    room.tell(message="too late")
    live.view._handle_custom_msg({"do": "finish"}, [])
    assert (room.closed, room.done, live.view.state["message"], live.view.live) == (True, [], "", False)


def test_orders_are_those_of_the_room():
    assert ORDERS.keys() == ROOMS_ORDERS.keys()
    for name, states in (DRIVER_STATES | BROKER_STATES).items():
        assert set(ORDERS[name]["states"]) == set(states), name
    takes = {name: order["takes"] for name, order in ORDERS.items() if order["takes"]}
    assert takes == {name: name.partition("-")[2] for name in (DRIVER_STATES | BROKER_STATES)}
    assert all(target in ROOMS_ORDERS[name] for name, target in takes.items())


def test_every_text_is_used_and_every_text_that_is_used_is_there():
    source = "\n".join(HERE.joinpath(part).read_text() for part in PARTS)
    used = set(re.findall(r"texts\.(\w+)", source))
    assert used - TEXTS.keys() == set(), "the browser wants a text that is not there"
    pieces = "transaction|plain|of_none|short|step_|so_far_|aim_"
    built = {name for name in TEXTS if re.match(pieces, name)}  # put together of pieces
    built |= {"smaller", "smaller_sign", "larger", "larger_sign", "earlier", "later"}
    of_kinds = {"driver", "broker", "sent", "counted", "behind", "committed", "uncommitted", "previous", "next"}
    assert TEXTS.keys() - used - built - of_kinds == set(), "nobody uses it"
    assert json.loads(json.dumps(words())) == words()


def test_the_browser_asks_nobody_and_writes_no_words_of_its_own():
    source = module()
    assert not re.search(r"fetch\(|XMLHttpRequest|import\(|innerHTML|localStorage|https?://(?!www\.w3\.org)", source)
    assert not re.search(r"@import|url\(", HERE.joinpath("view.css").read_text())


def test_either_a_room_or_a_recording_is_shown():
    with pytest.raises(ValueError, match="either a room or a recording"):
        RoomView()


def told() -> dict[str, Any]:
    """Return a state in which there is something of everything."""
    entry = {"kind": "row", "state": "committed", "producer": 1, "epoch": 3, "batch": 5, "window": "12:00:05"}
    entry |= {"ip": "10.0.0.1", "count": 3, "copy": False}
    state = empty_state()
    rows = [{**entry, "offset": n, "state": kind} for n, kind in enumerate(("committed", "aborted", "open", "plain"))]
    controls = [{**entry, "offset": 4, "kind": "commit"}, {**entry, "offset": 5, "kind": "abort", "state": "aborted"}]
    state["log"] = {"end": 7, "stable": 2, "entries": [*rows, *controls, {**entry, "offset": 6, "copy": True}]}
    state["drivers"] = [
        {"number": n, "state": name, "batch": None, "epoch": None} for n, name in enumerate([*DRIVERS][-4:], 4)
    ]
    state["brokers"] = [{"number": 0, "state": "running"}, {"number": 1, "state": "killed"}]
    state["batches"] = [{"number": 5, "state": "noted", "driver": 1, "runs": 2}]
    state["chronicle"] = [
        {"number": 1, "time": 12.34, "strike": "kill-driver", "words": "driver 1 was killed", "consequence": "fenced"}
    ]
    state["verdict"] |= {"word": "invalid", "expected": 9, "delivered": 7, "lost": 2, "torn": 1, "why": "2 lost"}
    state["report"] = {**state["verdict"], "verdict": "invalid", "why": "2 lost"}
    return {**state, "time": 33.0, "marker": {"batch": 5, "epoch": 3}}


def test_the_still_says_in_words_what_it_shows():
    said = in_words(told())
    for words_ in (
        "Verdict invalid: 7 of 9 delivered, 2 lost, 0 duplicated, 0 conflicting, 1 torn, 0 awaited (2 lost).",
        "The auditor's final report: invalid: 7 of 9 delivered",
        "driver 7 ended",
        "broker 0 running; broker 1 killed.",
        "batch 5 in checkpoint, 2 times begun.",
        "The log ends at offset 7, its last stable offset is 2; the marker says batch 5, epoch 3.",
        "1. 12.3 s, driver 1 was killed: fenced.",
    ):
        assert words_ in said
    view = RoomView(StubRoom(**told()))
    drawing = view.still()
    assert repr(view) == drawing.words == said
    for seen in ("✕ invalid", "last stable offset 2", "driver 1 was killed", "2×", ">C<", ">A<", "stroke-dasharray"):
        assert seen in drawing
    assert view.still() == drawing, "the same bytes each time"


def test_an_empty_room_can_be_drawn_and_told():
    view = RoomView(StubRoom())
    assert "nothing was struck" in view.still()
    assert "Verdict unknown: 0 of 0 delivered" in view.in_words()


def test_a_notebook_without_widgets_keeps_the_picture_and_the_words():
    bundle = RoomView(StubRoom(**told()))._repr_mimebundle_()
    bundle = bundle[0] if isinstance(bundle, tuple) else bundle
    assert bundle["text/plain"].startswith("The operations room after 33 s")
    assert re.match(r'<img data-room="[^"]+" src="data:image/svg\+xml;base64,', bundle["text/html"])


def test_there_are_recordings():
    assert len(RECORDINGS) >= 2


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_a_published_recording_is_small_whole_and_its_picture_is_of_its_end(path):
    assert path.stat().st_size < MOST_BYTES
    recording = load_recording(path)
    first, last = first_and_last(recording)
    assert first.keys() == last.keys() == set(KEYS)
    assert last["report"]["verdict"] == last["verdict"]["word"]
    assert len(last["chronicle"]) >= 2
    view = recorded_room(path)
    picture = ROOT / "docs" / "pictures" / f"room-{path.stem}.svg"
    assert picture.read_text() == view.still(), f"write recorded_room({path.name!r}).still() to {picture.name}"
    assert f'data-room="{{&quot;recording&quot;: &quot;{path.stem}&quot;}}"' in view.as_html()
    page = (ROOT / "docs" / "operations-room.md").read_text()
    numbers = f"{last['verdict']['word']}, {last['verdict']['delivered']} of {last['verdict']['expected']} results"
    assert f"{path.stem}\"}}' alt=" in page
    assert numbers in page, "the page says other numbers than the recording"


def test_the_scripts_of_a_page_stand_for_themselves(tmp_path):
    assert "export default" not in view_script()
    folder = tmp_path / "docs" / "recordings"
    folder.mkdir(parents=True)
    (folder / "one.json").write_text('{"version": 1}')
    assert recording_script("one", tmp_path) == '(globalThis.ROOM_RECORDINGS ??= {})["one"] = {"version":1};\n'
    with pytest.raises(ValueError, match=r"plays the recording 'two', and there is no docs/recordings/two\.json"):
        recording_script("two", tmp_path)


def test_the_moving_picture_of_the_readme_is_the_recording_with_the_marker():
    recording = load_recording(ROOT / "docs" / "recordings" / "with-the-marker.json")
    drawing = moving_picture(recording)
    assert (ROOT / "docs" / "pictures" / "room.svg").read_text() == drawing
    assert drawing.words == recorded_room(ROOT / "docs" / "recordings" / "with-the-marker.json").in_words()
    ElementTree.fromstring(drawing)


def test_a_moving_picture_shows_each_moment_and_rests_at_the_last():
    recording = load_recording(RECORDINGS[0])
    drawing = moving_picture(recording, pictures=4, seconds=8.0)
    moments = [float(each) for each in re.findall(r"· (\d+) s<", drawing)]
    assert len(moments) == 4
    assert moments == sorted(moments)
    assert moments[-1] == round(recording["frames"][-1][1].get("time", recording["seconds"]))
    assert [drawing.count(f'class="f f{n}"') for n in range(5)] == [1, 1, 1, 1, 0]
