"""The operations room of a notebook: one that runs, with its view; and one that was recorded.

    here = room(stage="+ batch marker")     # opens it; `here` as a cell's last line shows it
    here.play()                             # the short script, without hands
    here.finish()
    here.close()

Guarantee: a kernel has one room: the one that an earlier run left open is closed first, and whatever happens to the
kernel, all that the room started ends with it. A notebook that nobody sees keeps a picture and words.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labs.room.view import RoomView

if TYPE_CHECKING:
    from labs.evidence.auditor.audit import Audit
    from labs.room.room import Room
    from labs.room.script import Step


class LiveRoom:
    """A room that runs, and its view. It is shown as the view is."""

    def __init__(self, room: Room):
        self.room = room
        self.view = RoomView(room)

    def play(self, script: Iterable[Step] | None = None) -> Audit | None:
        """Carry out a script, the short one if none is given; return the auditor's word if it asks for it."""
        from labs.room.script import SHORT, play

        audit = play(self.room, SHORT if script is None else script)
        self._show_all(audit)
        return audit

    def finish(self) -> Audit:
        """Stop the traffic, let all be decided, and return what the auditor says."""
        audit = self.room.finish()
        self._show_all(audit)
        return audit

    def save(self, folder: str | Path) -> Path:
        """Write recording, audit and strikes into a folder that is empty or not there, and return it."""
        return self.room.save(folder)

    def close(self) -> None:
        """End all that the room started. The view stays as it is, and gives no orders any more. Twice is once."""
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
    """Open a room, and close the one that an earlier run in this kernel left open; `options` are those of `Room`."""
    from labs.room.room import Room

    while _open:
        _open.pop().close()
    _open.append(LiveRoom(Room(**options)))
    return _open[-1]


def recorded_room(folder: str | Path) -> RoomView:
    """Return the view of a recording: what `save` wrote into a folder, or a file of docs/recordings."""
    from labs.room.recording import load_recording

    path = Path(folder)
    published = path.parts[-3:-1] == ("docs", "recordings")
    return RoomView(recording=load_recording(path), name=path.stem if published else "")
