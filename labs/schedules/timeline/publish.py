"""The timeline on a published page: its module, its style and its data as one script."""

from __future__ import annotations

from labs.schedules.publish import live_pictures
from labs.schedules.timeline.data import timeline_data
from labs.schedules.timeline.timeline import HERE, STILL


def script() -> str:
    """Return the script for a page."""
    module, style = (HERE.joinpath(f"timeline.{kind}").read_text(encoding="utf-8") for kind in ("js", "css"))
    return live_pictures(module, style, STILL, {"data": timeline_data()})
