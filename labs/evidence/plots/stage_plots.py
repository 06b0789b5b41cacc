"""Plots that compare stages and engines: what went wrong, and what it costs.

`plot_staircase` and `plot_stage_fault_heatmap` take rows {stage, fault, expected, lost, duplicated, verdict}. Rows of
the same stage (and fault) are added up. A row whose verdict is neither valid nor invalid was not judged, and its
numbers are not shown.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from labs.evidence.auditor.anomalies import Fate, Verdict
from labs.evidence.plots.style import COLOURS, NOTHING_KNOWN, REQUESTS, dress, new_axes, say_instead

Row = Mapping[str, Any]
HATCH = "////"


@dataclass
class Total:
    """Rows added up; `verdict` is that of the last row, empty if there is no row."""

    expected: int = 0
    lost: int = 0
    duplicated: int = 0
    invalid: bool = False
    judged: bool = False
    verdict: str = ""

    def add(self, row: Row) -> None:
        self.verdict = row["verdict"]
        if row["verdict"] in (Verdict.VALID, Verdict.INVALID):
            self.judged = True
            self.invalid |= row["verdict"] == Verdict.INVALID
            self.expected += row["expected"]
            self.lost += row["lost"]
            self.duplicated += row["duplicated"]


def plot_staircase(rows: Iterable[Row], ax: Axes | None = None, *, title: str = "") -> Axes:
    """Plot the duplicated (and lost, if any) results of each stage, in the order given."""
    stages: dict[str, Total] = {}
    for row in rows:
        stages.setdefault(row["stage"], Total()).add(row)
    if not stages:
        return _nothing(ax)
    ax = ax or new_axes(max(6, 1.5 * len(stages) + 1), 4)
    judged = [total for total in stages.values() if total.judged]
    some_lost = any(total.lost for total in judged)
    width = 0.4 if some_lost else 0.8
    for x, total in enumerate(stages.values()):
        if not total.judged:
            _over(ax, x, 0, total.verdict or "not run", color="#555555")
        elif not (total.duplicated or total.lost):
            colour = COLOURS[Fate.WRONG if total.invalid else Fate.DELIVERED]
            text = "0, but\ninvalid" if total.invalid else "exactly 0"
            ax.bar(x, 0, 0.8, color=colour, edgecolor=colour, linewidth=4)
            _over(ax, x, 0, text, fontsize=13, fontweight="bold", color=colour)
        else:
            shift = width / 2 if some_lost else 0
            ax.bar(x - shift, total.duplicated, width, color=COLOURS[Fate.DUPLICATED])
            _over(ax, x - shift, total.duplicated, f"{total.duplicated:,}")
            if some_lost:
                ax.bar(x + shift, total.lost, width, color=COLOURS[Fate.LOST])
                _over(ax, x + shift, total.lost, f"{total.lost:,}")
    ax.set_xticks(range(len(stages)), [fill(stage, 14) for stage in stages])
    expected = {total.expected for total in judged}
    what = "results duplicated or lost" if some_lost else "results duplicated"
    steps = " → ".join(f"{total.duplicated:,}" if total.judged else "?" for total in stages.values())
    of = f" (of {expected.pop():,})" if len(expected) == 1 else ""
    dress(ax, title or f"duplicated results per stage: {steps}", "stage", what + of)
    ax.set_xlim(-0.6, len(stages) - 0.4)
    ax.set_ylim(0, max([1, *(max(total.duplicated, total.lost) for total in judged)]) * 1.12)
    ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    if some_lost:
        handles = [Patch(color=COLOURS[fate], label=str(fate)) for fate in (Fate.DUPLICATED, Fate.LOST)]
        ax.legend(handles=handles, frameon=False)
    return ax


def plot_stage_fault_heatmap(rows: Iterable[Row], ax: Axes | None = None, *, title: str = "") -> Axes:
    """Plot what the audit found for each stage (top to bottom) crashed at each fault (left to right)."""
    rows = list(rows)
    if not rows:
        return _nothing(ax)
    stages = list(dict.fromkeys(row["stage"] for row in rows))
    faults = list(dict.fromkeys(row["fault"] for row in rows))
    cells = {(stage, fault): Total() for stage in stages for fault in faults}
    for row in rows:
        cells[row["stage"], row["fault"]].add(row)
    ax = ax or new_axes(max(7, 3 + 1.4 * len(faults)), 2 + 0.6 * len(stages))
    for (stage, fault), total in cells.items():
        x, y, (colour, text) = faults.index(fault), stages.index(stage), _cell(total)
        hatch = None if total.judged else HATCH
        cell = Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor="white", linewidth=2, hatch=hatch)
        ax.add_patch(cell)
        ax.text(x, y, text, ha="center", va="center")
    names = [fill((fault or "no crash").replace(" + ", " +\n"), 20) for fault in faults]
    ax.set_xticks(range(len(faults)), names)
    ax.set_yticks(range(len(stages)), stages)
    ax.set(xlim=(-0.5, len(faults) - 0.5), ylim=(len(stages) - 0.5, -0.5))
    clean = [stage for stage in stages if _is_clean([cells[stage, fault] for fault in faults])]
    finding = "nothing lost or duplicated wherever crashed: " + (", ".join(clean) or "none of the stages")
    dress(ax, title or finding, "crash point", "stage", grid="")
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    return ax


def _cell(total: Total) -> tuple[str, str]:
    """Return colour and text of a cell; the more of the results are affected, the stronger the colour."""
    if not total.judged:
        return NOTHING_KNOWN, total.verdict or "not run"
    share = (total.lost + total.duplicated) / max(total.expected, 1)
    text = [f"−{total.lost:,} lost"] if total.lost else []
    text += [f"+{total.duplicated:,} dup"] if total.duplicated else []
    if text:
        fate = Fate.LOST if total.lost else Fate.DUPLICATED
        return _tint(COLOURS[fate], 0.4 + 0.6 * min(share, 1)), "\n".join(text)
    return (COLOURS[Fate.WRONG], "invalid") if total.invalid else (COLOURS[Fate.DELIVERED], "0")


def _is_clean(totals: list[Total]) -> bool:
    judged = [total for total in totals if total.judged]
    return bool(judged) and not any(total.invalid for total in judged)


def _tint(colour: str, strength: float) -> str:
    """Return the colour mixed with white, from 0 (white) to 1 (as it is)."""
    red, green, blue = (1 - strength * (1 - part) for part in to_rgb(colour))
    return to_hex((red, green, blue))


def _over(ax: Axes, x: float, height: float, text: str, **style: Any) -> None:
    """Write a text just above a bar."""
    ax.annotate(text, (x, height), (0, 4), textcoords="offset points", ha="center", **style)


def _nothing(ax: Axes | None) -> Axes:
    ax = ax or new_axes()
    dress(ax, "no stage was run", "", "stage", grid="")
    say_instead(ax, "there are no rows to show")
    return ax


# The marker and the dashes tell the lines apart, too, and not the colour alone.
LINES = ((REQUESTS, "s", "-"), ("black", "^", "--"), ("#888888", "o", "-."), ("#555555", "D", ":"))


def plot_by_batch_size(
    lines: Mapping[str, Mapping[int, float]], ax: Axes | None = None, *, title: str, y: str, ratio: bool = False
) -> Axes:
    """Plot one line (rows per batch -> value) for each name, on logarithmic axes.

    A `ratio` has a linear axis from 0, with a line at 1.
    """
    ax = ax or new_axes(8, 3.8)
    dress(ax, title, "rows per batch", y)
    if not any(lines.values()):
        say_instead(ax, "no batch was measured")
        return ax
    for (name, values), (colour, marker, style) in zip(lines.items(), itertools.cycle(LINES), strict=False):
        ax.plot(list(values), list(values.values()), style, color=colour, marker=marker, markersize=6, label=name)
    ax.set_xscale("log")
    ax.set_xticks(sorted({size for values in lines.values() for size in values}))
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    ax.minorticks_off()
    if ratio:
        ax.axhline(1, color="black", linewidth=1)
        ax.set_ylim(bottom=0)
    else:
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    ax.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1, 1))
    return ax


def plot_stall(samples: Sequence[tuple[float, int, int]], ax: Axes | None = None, *, title: str = "") -> Axes:
    """Plot samples (second, last stable offset, log end); offsets hidden from read_committed readers are shaded."""
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


# The mark tells the kinds of steps apart, too, and not the colour alone.
MARKS = {
    "rows in Kafka": ("o", REQUESTS),
    "noted as done": ("D", COLOURS[Fate.DUPLICATED]),
    "commit asked for": ("^", "black"),
    "killed": ("X", COLOURS[Fate.LOST]),
    "aborted by Kafka": ("s", "#555555"),
    "started again": (">", COLOURS[Fate.DELIVERED]),
}
ABOVE = 0.27  # of the distance between two lines
BARS = (REQUESTS, "#888888", "#333333", "#bbbbbb")
HATCHES = ("", "///", "...", "xxx")


def plot_outages(lines: Mapping[str, Sequence[tuple[float, str]]], ax: Axes | None = None, *, title: str = "") -> Axes:
    """Plot one line of steps (second, what) for each name. Steps without a mark are not drawn.

    Seconds count from the request to commit, on a scale that shows both tenths of a second and minutes.
    """
    ax = ax or new_axes(9, 1.8 + 0.5 * len(lines))
    dress(ax, title or "a transaction whose commit never arrives", "seconds after its commit was asked for", "", "x")
    if not lines:
        say_instead(ax, "no outage was recorded")
        return ax
    for lane, steps in enumerate(lines.values()):
        ax.axhline(lane, color=NOTHING_KNOWN, linewidth=1, zorder=0)
        for what, (mark, colour) in MARKS.items():
            seconds = [second for second, seen in steps if seen == what]
            height = lane - ABOVE if what == "noted as done" else lane  # else it may cover another mark
            ax.plot(seconds, [height] * len(seconds), mark, color=colour, markersize=9, linestyle="none")
    for what, (mark, colour) in MARKS.items():
        ax.plot([], [], mark, color=colour, linestyle="none", label=what)
    ax.set_xscale("symlog", linthresh=1)
    ax.set_xticks([-1, 0, 1, 10], ["-1", "0", "1", "10"])
    ax.set_yticks(range(len(lines)), list(lines))
    ax.set_ylim(len(lines) - 0.5, -0.5)
    ax.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1, 1))
    return ax


def plot_engines(ratios: Mapping[str, Mapping[str, float]], ax: Axes | None = None, *, title: str = "") -> Axes:
    """Plot measurement -> engine -> ratio as groups of bars, up or down from a line at 1; less is better."""
    ax = ax or new_axes(9, 3.4)
    dress(ax, title or "engines compared", "", "ratio (less is better)")
    engines = list(dict.fromkeys(engine for values in ratios.values() for engine in values))
    if not engines:
        say_instead(ax, "nothing was measured")
        return ax
    width = 0.8 / len(engines)
    for n, engine in enumerate(engines):
        measured = {group: values[engine] for group, values in enumerate(ratios.values()) if engine in values}
        places = [group + (n - (len(engines) - 1) / 2) * width for group in measured]
        heights = [ratio - 1 for ratio in measured.values()]
        look: dict[str, Any] = {"color": BARS[n % len(BARS)], "hatch": HATCHES[n % len(HATCHES)], "edgecolor": "white"}
        bars = ax.bar(places, heights, width * 0.9, bottom=1, label=engine, **look)
        ax.bar_label(bars, [f"{ratio:.2g}" for ratio in measured.values()], fontsize=9, padding=2)
    ax.axhline(1, color="black", linewidth=1, zorder=1.5)
    # A logarithmic axis: 2 is as far from 1 as 1/2 is.
    ax.set_yscale("log")
    ax.set_yticks([0.1, 1, 10], ["0.1", "1", "10"])
    ax.minorticks_off()
    ax.margins(y=0.15)
    ax.set_xticks(range(len(ratios)), list(ratios))
    ax.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1, 1))
    return ax
