"""The view of the operations room: drivers and brokers, the log of the sink's topic, the verdict, and the orders.

    RoomView(room)                    # live: shows the room's changes, passes orders to the room
    RoomView(recording=recording)     # plays a recording: pause, speed, seek; needs no kernel

Guarantee: all words and numbers come from Python; the browser only arranges them. Each key of the state is a trait of
its own, and only changed keys are sent. Limitations: while a cell runs, a notebook's kernel cannot react to a button.

In a notebook:

    here = room(stage="+ batch marker")     # opens it; `here` as a cell's last line shows it
    here.play()                             # plays the short script
    here.finish()
    here.close()

Guarantee: a kernel has at most one room, since `room` first closes one that an earlier run left open. However the
kernel ends, the room's processes end with it. A notebook that runs without a browser keeps a picture and a description.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import anywidget
import traitlets

from labs.room.picture import picture
from labs.room.published import HERE, PREFIX, STILL, module
from labs.room.recording import states
from labs.room.state import KEYS, ORDERS, empty_state, in_words, words
from labs.schedules.publish import live_picture, with_still
from labs.schedules.svg import Drawing

if TYPE_CHECKING:
    from labs.evidence.auditor.audit import Audit
    from labs.room.room import Room
    from labs.room.script import Step


class AnyRoom(Protocol):
    """The methods of a room that the view calls."""

    @property
    def state(self) -> dict[str, Any]: ...

    def subscribe(self, subscriber: Callable[[dict[str, Any]], object]) -> Callable[[], None]: ...

    def do(self, order: str, **arguments: Any) -> Any: ...


_Traits: Any = type(
    "_Traits", (anywidget.AnyWidget,), {f"{PREFIX}{key}": traitlets.Any().tag(sync=True) for key in KEYS}
)


class RoomView(_Traits):
    """The widget. `name` is that of a recording in docs/recordings, which the published page then plays."""

    _esm = module()
    _css = HERE / "view.css"
    words = traitlets.Dict().tag(sync=True)
    live = traitlets.Bool().tag(sync=True)
    recording = traitlets.Dict(allow_none=True).tag(sync=True)

    def __init__(self, room: AnyRoom | None = None, *, recording: dict[str, Any] | None = None, name: str = ""):
        if (room is None) == (recording is None):
            raise ValueError("a view shows either a room or a recording: RoomView(room), RoomView(recording=…)")
        state = room.state if room else first_and_last(recording or {})[0]
        self._room, self._name, self._lock = room, name, threading.RLock()
        traits = {f"{PREFIX}{key}": value for key, value in state.items() if key in KEYS}
        super().__init__(words=words(), live=room is not None, recording=recording, **traits)
        if room:
            self.on_msg(self._ordered)
            self._unsubscribe = room.subscribe(self.update)
            self.catch_up()

    @property
    def state(self) -> dict[str, Any]:
        """Return the state that the view shows; for a recording, its last state."""
        if self.recording:
            return first_and_last(self.recording)[1]
        return {key: getattr(self, f"{PREFIX}{key}") for key in KEYS}

    def update(self, changes: Mapping[str, Any]) -> None:
        """Show all changes at once. It may be called from any thread."""
        with self._lock, self.hold_sync():
            for key, value in changes.items():
                self.set_trait(f"{PREFIX}{key}", value)

    def catch_up(self) -> None:
        """Show the room's state as it is now."""
        with self._lock:  # so that later changes of the room come after this one
            if self._room:
                self.update(self._room.state)

    def rest(self) -> None:
        """Keep the last state: take no more changes from the room, and pass no more orders to it."""
        if self._room:
            self._unsubscribe()
        self._room, self.live = None, False

    def _ordered(self, _widget: Any, content: Any, _buffers: Any) -> None:
        """Pass a message from the browser to the room, if it is an order: {do: name, …}."""
        arguments = dict(content) if isinstance(content, dict) else {}
        if self._room and (order := arguments.pop("do", None)) in ORDERS:
            self._room.do(order, **arguments)

    def still(self) -> Drawing:
        """Return a picture of the state."""
        return picture(self.state)

    def in_words(self) -> str:
        """Return a description of the state in words."""
        return in_words(self.state)

    def __repr__(self) -> str:
        return self.in_words()

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return with_still(super()._repr_mimebundle_(**kwargs), self.in_words(), self.as_html())

    def as_html(self) -> str:
        """Return the picture with the recording's name, or the state, by which a published page makes it live."""
        carried = {"recording": self._name} if self._name else {"state": self.state}
        return live_picture(self.still(), STILL, carried)


def first_and_last(recording: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the first and the last state of a recording."""
    shown = [state for _, state in states(recording)] or [empty_state()]
    return shown[0], shown[-1]


class LiveRoom:
    """A room that runs, and its view, which Jupyter shows."""

    def __init__(self, room: Room):
        self.room = room
        self.view = RoomView(room)

    def play(self, script: Iterable[Step] | None = None) -> Audit | None:
        """Carry out a script, by default the short one; return the audit if the script has a `finish`.

        In two cases a new act of the same stage begins first: if the present act was judged, or if the script starts
        the traffic although it is on. In the second case an earlier run of the script was interrupted, or timed out.
        """
        from labs.room.script import SHORT, Do, play

        steps = SHORT if script is None else tuple(script)
        was_cut_short = self.room.state["traffic"]["on"] and steps[:1] == (Do("start-traffic"),)
        if was_cut_short:
            play(self.room, [Do("stop-traffic")])
        if was_cut_short or self.room.state["report"]:
            play(self.room, [Do("choose-stage", {"stage": self.room.state["stage"]["name"]})])
        audit = play(self.room, steps)
        self._show_all(audit)
        return audit

    def finish(self) -> Audit:
        """Stop the traffic, wait until every result is decided, and return the audit."""
        audit = self.room.finish()
        self._show_all(audit)
        return audit

    def save(self, folder: str | Path) -> Path:
        """Write recording, audit and strikes into a folder that is empty or not there, and return it."""
        return self.room.save(folder)

    def close(self) -> None:
        """End the room. The view keeps its last state, and gives no more orders. Idempotent."""
        self.room.close()
        self.view.rest()

    def _show_all(self, audit: Audit | None) -> None:
        if audit is not None:
            self.room.wait(lambda state: state["report"])
        self.view.catch_up()

    def __repr__(self) -> str:
        return self.view.in_words()

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return self.view._repr_mimebundle_(**kwargs)


_open: list[LiveRoom] = []


def room(**options: Any) -> LiveRoom:
    """Open a room, after closing one that an earlier run in this kernel left open; `options` are those of `Room`."""
    from labs.room.room import Room

    while _open:
        _open[-1].close()
        _open.pop()  # only now: if this was interrupted, the next run closes it
    _open.append(LiveRoom(Room(**options)))
    return _open[-1]


def recorded_room(folder: str | Path) -> RoomView:
    """Return the view of a recording: what `save` wrote into a folder, or a file of docs/recordings."""
    from labs.room.recording import load_recording

    path = Path(folder)
    published = path.parts[-3:-1] == ("docs", "recordings")
    return RoomView(recording=load_recording(path), name=path.stem if published else "")
