"""Plots of the lab's stages side by side: the staircase, and the stages against the points of the crash.

Both take rows {stage, fault, expected, lost, duplicated, verdict}. Rows of the same stage (and fault) are
added up; a row whose verdict is neither valid nor invalid is not judged, and its numbers are not shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from labs.evidence.auditor.anomaly import Fate, Verdict
from labs.evidence.plots.style import COLOURS, NOTHING_KNOWN, dress, new_axes, say_instead

Row = Mapping[str, Any]
HATCH = "////"


@dataclass
class Total:
    """Rows added up; `verdict` is the last one's, empty if there is no row."""

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
