"""One page to project: a screen for each lesson, with a picture, the question, and a button that shows the answer.

It is made from the lessons' data (`lessons/NN.toml`) and from the pictures in their committed outputs. Guarantee: a
picture that comes after the question in its lesson is hidden until the button is pressed, and the page loads nothing.
Limitations: the picture is simply the first one of the lesson, or that of the pipeline if the lesson has none.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape, unescape
from pathlib import Path
from typing import Any

from labs.desk.course import CORE, Lesson, Question
from labs.schedules.lesson_pictures import draw_pipeline

PAGE = Path(__file__).with_name("slides.html")
MADE_HERE = '<meta name="generator" content="python -m labs slides">'
LONG = 30  # characters of an option

_IMAGE = re.compile(r'<img\s[^>]*?src="(data:image/[^"]+)"[^>]*?alt="([^"]*)"')
_HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Picture:
    """A picture of a lesson: its data URL, its description, and whether it comes after the question (`reveals`)."""

    data: str
    words: str
    reveals: bool = False


def page(lessons: Sequence[Lesson], notebooks: Path) -> str:
    """Return the page as HTML. A lesson without a picture that may be shown yet has that of the pipeline."""
    pipeline = draw_pipeline()
    encoded = base64.b64encode(pipeline.encode()).decode()
    of_all = Picture(f"data:image/svg+xml;base64,{encoded}", pipeline.words)
    asking = [each for lesson in lessons for each in _one_screen_each(lesson)]
    screens = "\n".join(_screen(lesson, picture_of(lesson, notebooks) or of_all, of_all) for lesson in asking)
    template = PAGE.read_text()
    return template.replace("<!-- made here -->", MADE_HERE).replace("<!-- screens -->", screens)


def _one_screen_each(lesson: Lesson) -> list[Lesson]:
    """Return the lesson once for each of its screens: the core has a screen for each of its predictions."""
    if lesson.number != CORE:
        return [lesson]
    questions = enumerate(lesson.predictions, 1)
    return [dataclasses.replace(lesson, screen=each.question, on_screen=number) for number, each in questions]


def asked(lesson: Lesson) -> Question | None:
    """Return the prediction that the projected question rephrases."""
    return lesson.predictions[lesson.on_screen - 1] if lesson.predictions else None


def picture_of(lesson: Lesson, notebooks: Path) -> Picture | None:
    """Return the lesson's first picture, if possible one before the question."""
    notebook = next(iter(sorted(notebooks.glob(f"{lesson.number}*.ipynb"))), None)
    if notebook is None:
        return None
    cells = json.loads(notebook.read_text())["cells"]
    question = asked(lesson)
    asks = _asks(cells, question.question if question else lesson.screen)
    found = [(n, picture) for n, picture in _pictures(cells) if n < asks] or list(_pictures(cells))
    if not found:
        return None
    at, picture = found[0]
    return Picture(picture.data, picture.words, reveals=at >= asks)


def _asks(cells: Sequence[dict[str, Any]], question: str) -> int:
    """Return the number of the cell that asks a question; if none has its words, of the first cell that asks any.

    If no cell asks anything it is 0, so that every picture counts as one that may show the answer.
    """
    sources = ["".join(cell["source"]) if cell["cell_type"] == "code" else "" for cell in cells]
    beginning = question[:40]
    found = [n for n, source in enumerate(sources) if beginning in source]
    return [*found, *(n for n, source in enumerate(sources) if "predict(" in source), 0][0]


def _pictures(cells: Sequence[dict[str, Any]]) -> Iterator[tuple[int, Picture]]:
    heading = ""
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "markdown":
            heading = [heading, *_HEADING.findall("".join(cell["source"]))][-1]
        for output in cell.get("outputs", []):
            data = {kind: "".join(value) for kind, value in output.get("data", {}).items() if "json" not in kind}
            if image := _IMAGE.search(data.get("text/html", "")):
                yield number, Picture(image[1], unescape(image[2]))
            elif "image/png" in data:
                yield number, Picture(f"data:image/png;base64,{data['image/png'].strip()}", f"Plot from: {heading}")


def _screen(lesson: Lesson, picture: Picture, meanwhile: Picture) -> str:
    question = asked(lesson)
    name = f"lesson-{lesson.number}" + (f"-{lesson.on_screen}" if lesson.number == CORE else "")
    parts = [
        f'<section id="{name}" aria-labelledby="{name}-title">',
        f'<h2 id="{name}-title"><span>{escape(lesson.number)}</span> {escape(lesson.title)}</h2>',
        f'<p class="question">{escape(lesson.screen)}</p>',
    ]
    parts.append(_image(meanwhile, "meanwhile") if picture.reveals else _image(picture))
    if question and question.options:
        right = [' class="right"' if option == question.answer else "" for option in question.options]
        long = " long" if max(len(str(option)) for option in question.options) > LONG else ""
        items = [f"<li{mark}>{escape(str(option))}</li>" for option, mark in zip(question.options, right, strict=True)]
        parts.append(f'<ol class="options{long}">{"".join(items)}</ol>')
    parts.append(f'<button type="button" aria-expanded="false" aria-controls="{name}-answer">Show the answer</button>')
    parts.append(f'<div class="answer" id="{name}-answer" aria-live="polite">')
    says = f"<strong>{escape(str(question.answer))}</strong> · " if question else ""
    parts.append(f"<p>{says}{escape(lesson.claim)}</p>")
    if picture.reveals:
        parts.append(_image(picture))
    return "\n".join([*parts, "</div>", "</section>"])


def _image(picture: Picture, kind: str = "") -> str:
    return f'<figure class="{kind}"><img src="{picture.data}" alt="{escape(picture.words)}"></figure>'
