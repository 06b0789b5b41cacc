"""The view of the operations room: who lives, the log of the sink's topic, the verdict; and what one can strike.

    RoomView(room)                    # live: shows what the room's thread reports, hands the room what is ordered
    RoomView(recording=recording)     # plays a recording: pause, speed, seek; needs no kernel

Guarantee: all words and numbers come from Python; the browser lays them out. Each key of the state is a trait of its
own, and a tick sends only what has changed. Where it stops: while a cell runs, a notebook's kernel hears no button.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import anywidget
import traitlets

from labs.room.picture import picture
from labs.room.recording import states
from labs.room.said import in_words
from labs.room.state import KEYS, empty_state
from labs.room.words import ORDERS, words
from labs.schedules.publish import live_picture, with_still
from labs.schedules.svg import Drawing

HERE = Path(__file__).parent / "browser"
# One module of several files: each is a part of the view, and later ones use what earlier ones define.
PARTS = ("dom.js", "top.js", "who_lives.js", "log.js", "work.js", "strikes.js", "player.js", "view.js")
PREFIX = "now_"  # since a widget has a `log` of its own
STILL = "data-room"  # what a picture carries, so that a published page can make it live again


class AnyRoom(Protocol):
    """What the view needs of a room."""

    @property
    def state(self) -> dict[str, Any]: ...

    def subscribe(self, subscriber: Callable[[dict[str, Any]], object]) -> Callable[[], None]: ...

    def do(self, order: str, **arguments: Any) -> Any: ...


def module() -> str:
    """Return the view's JavaScript."""
    return "\n".join(HERE.joinpath(part).read_text(encoding="utf-8") for part in PARTS)


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
        """Return what it shows; of a recording, how it ends."""
        if self.recording:
            return first_and_last(self.recording)[1]
        return {key: getattr(self, f"{PREFIX}{key}") for key in KEYS}

    def update(self, changes: Mapping[str, Any]) -> None:
        """Show what has changed, all at once. It may be called from any thread."""
        with self._lock, self.hold_sync():
            for key, value in changes.items():
                self.set_trait(f"{PREFIX}{key}", value)

    def catch_up(self) -> None:
        """Show the room's state as it is now."""
        with self._lock:  # what the room tells meanwhile comes afterwards
            if self._room:
                self.update(self._room.state)

    def rest(self) -> None:
        """Stay as it is: hear of the room no more, and give it no orders."""
        if self._room:
            self._unsubscribe()
        self._room, self.live = None, False

    def _ordered(self, _widget: Any, content: Any, _buffers: Any) -> None:
        """Hand a message of the browser's to the room, if it is one of the orders: {do: name, …}."""
        arguments = dict(content) if isinstance(content, dict) else {}
        if self._room and (order := arguments.pop("do", None)) in ORDERS:
            self._room.do(order, **arguments)

    def still(self) -> Drawing:
        """Return a picture of it."""
        return picture(self.state)

    def in_words(self) -> str:
        """Return what it shows, in words."""
        return in_words(self.state)

    def __repr__(self) -> str:
        return self.in_words()

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return with_still(super()._repr_mimebundle_(**kwargs), self.in_words(), self.as_html())

    def as_html(self) -> str:
        """Return the picture, with what a published page needs to make it live: the recording's name, or the state."""
        carried = {"recording": self._name} if self._name else {"state": self.state}
        return live_picture(self.still(), STILL, carried)


def first_and_last(recording: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the state with which a recording begins, and the one with which it ends."""
    shown = [state for _, state in states(recording)] or [empty_state()]
    return shown[0], shown[-1]
