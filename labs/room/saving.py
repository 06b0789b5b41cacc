"""A session as a folder: what was seen, what was struck, and what the auditor said of it.

recording.json   for the view, which plays it back
schedule.json    the strikes, in their order: [{"time", "do", and the order's arguments}]
audit.json       the auditor's last word, or null
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from labs.evidence.auditor.audit import Audit
from labs.room.possible import NotDone
from labs.room.recording import write_recording
from labs.room.session import Session


def save(name: str, recording: dict[str, Any], session: Session, audit: Audit | None) -> None:
    """Write the folder. Raises NotDone, OSError."""
    path = _folder(name)
    strikes = [
        {"time": each.time, "do": each.strike, **{key: value for key, value in each.arguments.items() if value != ""}}
        for each in session.chronicle.all
    ]
    judged = audit.as_dict() if audit is not None and session.over else None
    write_recording(recording, path)
    (path / "schedule.json").write_text(json.dumps(strikes, indent=1) + "\n")
    (path / "audit.json").write_text(json.dumps(judged, indent=1) + "\n")


def _folder(name: str) -> Path:
    """Return a folder that is to be written. Raises NotDone if there is something in it, or it cannot be."""
    path = Path(name).expanduser()
    try:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise NotDone(f"save: {path} is there already, and not empty; choose another folder")
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotDone(f"save: {path} cannot be made: {error.strerror or error}") from None
    return path
