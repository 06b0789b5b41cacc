"""The explorable timeline: drag a crash along two batches, switch mechanisms on and off, and see what a reader sees.

    timeline("at least once")           # opens with what this stage has; every switch can be turned

Everything it can show was worked out by the model beforehand and is in the widget's data: nothing is decided in the
browser, nothing is fetched, and no kernel is needed. Where there are no widgets it is a picture and words.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anywidget
import traitlets

from labs.schedules.publish import live_picture, style_of, with_still
from labs.schedules.svg import Drawing
from labs.schedules.timeline.course import CRASH, FAULTS
from labs.schedules.timeline.data import timeline_data
from labs.schedules.timeline.places import PLACES
from labs.schedules.timeline.still import in_words, still
from labs.schedules.timeline.switches import LABELS, PRESETS

HERE = Path(__file__).parent
STILL = "data-timeline"  # what a picture carries, so that a published page can make it live again
PLACE = next(n for n, place in enumerate(PLACES) if place.batch == 1 and place.station == "commit")


class Timeline(anywidget.AnyWidget):
    """The widget. `switches` is a text of 0 and 1 for the switches in their order, `place` the number of a place."""

    _esm = HERE / "timeline.js"
    _css = style_of(HERE / "timeline.css")
    data = traitlets.Dict().tag(sync=True)
    shown = traitlets.List(traitlets.Unicode()).tag(sync=True)
    switches = traitlets.Unicode().tag(sync=True)
    fault = traitlets.Unicode(CRASH).tag(sync=True)
    place = traitlets.Int(PLACE).tag(sync=True)

    def still(self) -> Drawing:
        """Return a picture of how it stands now."""
        return still(self.data, self.fault, self.switches, self.place, self.shown)

    def in_words(self) -> str:
        """Return how it stands now, in words."""
        return in_words(self.data, self.fault, self.switches, self.place, self.shown)

    def __repr__(self) -> str:
        return self.in_words()

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        traits = {name: getattr(self, name) for name in ("shown", "switches", "fault", "place")}
        html = live_picture(self.still(), STILL, traits)
        return with_still(super()._repr_mimebundle_(**kwargs), self.in_words(), html)


def timeline(
    stage: str = "the sink",
    *,
    place: int | str = "after_commit",
    fault: str = CRASH,
    only: tuple[str, ...] | list[str] = tuple(LABELS),
) -> Timeline:
    """Return the timeline as it is at a stage of the course, with the fault at a fault point of batch 1.

    `stage` is one of PRESETS; `place` a fault point, or the number of a place; `only` names the switches to be shown.
    """
    if stage not in PRESETS:
        raise ValueError(f"there is no stage {stage!r}; there are: {', '.join(PRESETS)}")
    if fault not in FAULTS:
        raise ValueError(f"there is no fault {fault!r}; there are: {', '.join(FAULTS)}")
    if unknown := [each for each in only if each not in LABELS]:
        raise ValueError(f"there is no switch {unknown[0]!r}; there are: {', '.join(LABELS)}")
    places = {point: n for n, each in enumerate(PLACES) for point in each.points}
    number = places.get(place, -1) if isinstance(place, str) else place
    if not 0 <= number < len(PLACES):
        raise ValueError(f"there is no place {place!r}; there are 0 to {len(PLACES) - 1} and {', '.join(places)}")
    widget = Timeline(data=timeline_data(), shown=list(only), switches=PRESETS[stage].key, fault=fault, place=number)
    return widget
