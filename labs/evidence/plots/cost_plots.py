"""Plots of what exactly-once costs: latency per window, the parts of a batch, and readers who are held up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from labs.evidence.plots.style import NOTHING_KNOWN, REQUESTS, dress, new_axes, say_instead

DARK = "#555555"
# Not by colour alone: each line has a marker of its own.
LINES = ((DARK, "o"), (REQUESTS, "s"), ("black", "^"), ("#888888", "D"))
SHADES = ("#0072B2", "#66A9D1", "#222222", "#777777", "#AAAAAA", "#D5D5D5")
TOTAL = "triggerExecution"
OTHER = "other"
LEAST_NAMED = 0.05  # of the longest bar: a narrower part has no room for its number


def plot_latencies(latencies: Mapping[str, Sequence[float]], ax: Axes | None = None, *, title: str = "") -> Axes:
    """Plot milliseconds per window, in order, one line for each name."""
    ax = ax or new_axes(8, 3.4)
    dress(ax, title or "how long after it could be closed each window was visible", "window", "milliseconds")
    if not any(latencies.values()):
        say_instead(ax, "no window was measured")
        return ax
    for (name, values), (colour, marker) in zip(latencies.items(), LINES, strict=False):
        ax.plot(range(1, len(values) + 1), values, color=colour, marker=marker, markersize=5, linewidth=1, label=name)
    ax.set_ylim(bottom=0)
    ax.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1, 1))
    return ax


def plot_batch_parts(
    batches: Mapping[str, Mapping[str, float]], ax: Axes | None = None, *, title: str = "", total: str = TOTAL
) -> Axes:
    """Plot one bar for each name, of parts with their milliseconds; the remainder of `total` is drawn as `other`."""
    ax = ax or new_axes(9, 1.4 + 0.6 * len(batches))
    dress(ax, title or "where the milliseconds of one batch go", "milliseconds", "", grid="x")
    bars = {name: _with_rest(parts, total) for name, parts in batches.items()}
    longest = max((sum(parts.values()) for parts in bars.values()), default=0)
    if not longest:
        say_instead(ax, "no batch was measured")
        return ax
    sums: dict[str, float] = {}
    for parts in bars.values():
        for part, milliseconds in parts.items():
            sums[part] = sums.get(part, 0) + milliseconds
    order = sorted(sums, key=lambda part: (part == OTHER, -sums[part]))
    shown = {part: SHADES[-1] if part == OTHER else SHADES[min(n, len(SHADES) - 2)] for n, part in enumerate(order)}
    for y, parts in enumerate(bars.values()):
        left = 0.0
        for part, colour in shown.items():
            width = parts.get(part, 0.0)
            ax.barh(y, width, 0.6, left, color=colour, edgecolor="white", label=part if y == 0 else None)
            if width > LEAST_NAMED * longest:
                ink = "black" if colour in SHADES[-2:] else "white"
                ax.text(left + width / 2, y, f"{width:,.0f}", color=ink, ha="center", va="center", fontsize=9)
            left += width
    ax.set_yticks(range(len(bars)), list(bars))
    ax.invert_yaxis()
    ax.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1, 1))
    return ax


def plot_stall(samples: Sequence[tuple[float, int, int]], ax: Axes | None = None, *, title: str = "") -> Axes:
    """Plot samples (second, last stable offset, log end); what committed readers cannot read is shaded."""
    ax = ax or new_axes(8, 3.2)
    dress(ax, title or "committed readers wait for the transaction that nobody ends", "seconds", "offset")
    if not samples:
        say_instead(ax, "nothing was sampled")
        return ax
    seconds, stable, end = zip(*samples, strict=True)
    ax.fill_between(seconds, stable, end, step="post", color=NOTHING_KNOWN, linewidth=0, label="waiting")
    ax.step(seconds, end, where="post", color="black", linewidth=1.2, label="log end")
    ax.step(seconds, stable, where="post", color=REQUESTS, linestyle="dashed", label="last stable offset")
    ax.set_ylim(bottom=0)
    ax.legend(frameon=False, fontsize=9, loc="upper left")
    return ax


def _with_rest(parts: Mapping[str, float], total: str) -> dict[str, float]:
    """Drop the total; add the remainder as `other`."""
    named = {part: milliseconds for part, milliseconds in parts.items() if part != total and milliseconds}
    rest = parts.get(total, 0) - sum(named.values())
    return {**named, OTHER: rest} if rest > 0 else named
