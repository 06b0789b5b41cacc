"""The parts of the lab's pictures: SVG as text, made without a browser, with the same bytes each time.

The background is always white, so that a picture can be read on a light page, on a dark page and in print.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from html import escape

from labs.equipment.plain_text import plain

INK, FAINT, BLUE, RED, GREEN, ORANGE = "#222222", "#BBBBBB", "#0072B2", "#D55E00", "#009E73", "#E69F00"
GREY, DARK_RED, DARK_GREEN = "#595959", "#A84300", "#00654A"  # for words, which need more contrast than lines
PALE, PALE_BLUE = "#F2F2F2", "#E5F1F8"  # the background of a box

LONGEST = 1_000_000  # characters of a picture's words


class Drawing(str):
    """An SVG document. A notebook shows it as a picture, or as its words where it shows no pictures."""

    words = ""

    def _repr_html_(self) -> str:
        # As an image, since JupyterLab shows no SVG in a notebook that it does not trust, such as a fresh clone's.
        picture = base64.b64encode(self.encode()).decode()
        return f'<img src="data:image/svg+xml;base64,{picture}" alt="{escape(self.words)}">'

    def __repr__(self) -> str:
        return self.words


def document(width: int, height: int, title: str, words: str, parts: Iterable[str], size: int = 13) -> Drawing:
    """Return the parts as a picture with a title, and with words that say the same."""
    words = plain(words, LONGEST)
    drawing = Drawing(
        "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
                f'viewBox="0 0 {width} {height}" role="img" aria-labelledby="title words" font-family="sans-serif" '
                f'font-size="{size}">',
                f'<title id="title">{escape(plain(title))}</title>',
                f'<desc id="words">{escape(words)}</desc>',
                f'<rect width="{width}" height="{height}" fill="#FFFFFF"/>',
                *parts,
                "</svg>",
                "",
            ]
        )
    )
    drawing.words = words
    return drawing


def text(
    x: int,
    y: int,
    words: str,
    *,
    anchor: str = "start",
    size: int = 13,
    colour: str = INK,
    weight: str = "normal",
    first: str = "",
) -> str:
    """Write words with a white edge, which keeps them readable on a line. `first` comes before them, in bold."""
    bold = f'<tspan font-weight="bold">{escape(plain(first))}</tspan>: ' if first else ""
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}" fill="{colour}" font-weight="{weight}" '
        f'paint-order="stroke" stroke="#FFFFFF" stroke-width="4">{bold}{escape(plain(words))}</text>'
    )


def line(x1: int, y1: int, x2: int, y2: int, colour: str, width: float = 1.5, dashes: str = "") -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}" stroke-width="{width}"{dashed}/>'


def arrow(x1: int, y1: int, x2: int, y2: int, dashes: str = "", colour: str = BLUE) -> str:
    """Draw a horizontal or vertical arrow."""
    if y1 == y2:
        back = -9 if x2 > x1 else 9
        shaft, head = (x2 + back * 2 // 3, y2), f"l {back} -5 v 10 z"
    else:
        back = -9 if y2 > y1 else 9
        shaft, head = (x2, y2 + back * 2 // 3), f"l -5 {back} h 10 z"
    return line(x1, y1, *shaft, colour, dashes=dashes) + f'<path d="M {x2} {y2} {head}" fill="{colour}"/>'


def box(x: int, y: int, width: int, height: int, fill: str = PALE, edge: str = INK, dashes: str = "") -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" fill="{fill}" stroke="{edge}" '
        f'stroke-width="1.5"{dashed}/>'
    )


def circle(x: int, y: int) -> str:
    return f'<circle cx="{x}" cy="{y}" r="6" fill="#FFFFFF" stroke="{BLUE}" stroke-width="1.5"/>'


def cross(x: int, y: int, size: int) -> Iterator[str]:
    yield line(x - size, y - size, x + size, y + size, RED, width=3)
    yield line(x - size, y + size, x + size, y - size, RED, width=3)
