"""The timeline on a published page: its module, its style and its data as one script."""

from __future__ import annotations

from labs.schedules.publish import live_pictures, style_of
from labs.schedules.timeline.data import timeline_data
from labs.schedules.timeline.timeline import HERE, STILL


def script() -> str:
    """Return the script for a page."""
    module = HERE.joinpath("timeline.js").read_text(encoding="utf-8")
    return live_pictures(module, style_of(HERE / "timeline.css"), STILL, {"data": timeline_data()})
