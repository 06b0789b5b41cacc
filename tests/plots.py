"""What a plot shows, read off its axes."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle


def bars(ax: Axes) -> list[Rectangle]:
    """Return the patches, all of which must be bars or boxes."""
    found = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    assert found == list(ax.patches)
    return found


def points(line: Line2D) -> list[list[float]]:
    """Return [x, y] of each point of a line."""
    return np.asarray(line.get_xydata()).tolist()


def legend(ax: Axes) -> list[str]:
    """Return what the legend says."""
    found = ax.get_legend()
    assert found is not None
    return [text.get_text() for text in found.get_texts()]
