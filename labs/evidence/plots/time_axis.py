"""Windows of event time on the x axis, from a handful to a year of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime

from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, DateFormatter
from matplotlib.patches import StepPatch

DAY_MS = 86_400_000
END_MS = 253_370_764_800_000  # 9999-01-01: close to the end of what matplotlib can label
MOST_SEPARATE_BARS = 30  # more would be mostly gaps


def draw_windows(
    ax: Axes,
    heights: Mapping[int, int],
    bottoms: Mapping[int, int],
    window_ms: int,
    margin: float,
    colour: str,
    label: str | None = None,
) -> StepPatch:
    """Draw one bar per window (start in epoch milliseconds) that has a height, as a single patch.

    `margin` (milliseconds) is left free on each side. A bar container would take a minute for a day of
    windows; the outline keeps a lone window visible there.
    """
    windows = [window for window in sorted(heights) if heights[window] and drawable(window)]
    edges: list[float] = []
    values: list[float] = []
    base: list[float] = []
    for window in windows:
        start, end = (window + margin) / DAY_MS, (window + window_ms - margin) / DAY_MS
        if edges and edges[-1] != start:
            values.append(float("nan"))
            base.append(0.0)
        if not edges or edges[-1] != start:
            edges.append(start)
        edges.append(end)
        values.append(bottoms.get(window, 0) + heights[window])
        base.append(bottoms.get(window, 0))
    return ax.stairs(
        values or [float("nan")],
        edges or [0, 1],
        baseline=base or [0],
        fill=True,
        facecolor=colour,
        edgecolor=colour,
        linewidth=0.8,
        label=label,
    )


def margin_between(windows: Collection[int], window_ms: int) -> float:
    """Return the milliseconds to leave free on each side of a bar, the same for all bars of a plot."""
    return window_ms * 0.08 if len(windows) <= MOST_SEPARATE_BARS else 0


def drawable(window: int) -> bool:
    return 0 <= window < END_MS


def label_time(ax: Axes, windows: Collection[int], window_ms: int) -> str:
    """Set the x axis to these windows and return its label."""
    shown = [window for window in windows if drawable(window)]
    if not shown:
        return "event time (UTC)"
    first, last = min(shown), max(shown) + window_ms
    padding = max((last - first) * 0.02, window_ms * (4 - (last - first) / window_ms) / 2)
    ax.set_xlim((first - padding) / DAY_MS, (last + padding) / DAY_MS)
    locator = AutoDateLocator(tz=UTC, minticks=2, maxticks=6)
    one_day = first // DAY_MS == (last - 1) // DAY_MS
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(
        DateFormatter("%H:%M:%S", tz=UTC) if one_day else ConciseDateFormatter(locator, tz=UTC)
    )
    day = f" on {datetime.fromtimestamp(first / 1000, UTC):%Y-%m-%d}" if one_day else ""
    hidden = len(windows) - len(shown)
    left_out = f"; windows left out, at impossible times: {hidden:,}" if hidden else ""
    return f"event time{day} (UTC){left_out}"
