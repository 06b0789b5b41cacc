"""One page: a notebook or Markdown becomes HTML, with anchors, with the site's links, and with sections to search.

Predictions and exit tickets work in the browser alone, since a published page has no kernel. Audits and the checker's
reports become tables: a lesson prints them as text, and a page has room for more.
"""

from __future__ import annotations

import ast
import base64
import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path, PurePosixPath
from typing import Any

import nbformat
from bs4 import BeautifulSoup, Tag
from nbconvert import HTMLExporter

from labs.desk.course import Option, Question, find_lesson, find_prediction, reply_to_prediction, reply_to_ticket
from labs.desk.questions import review
from labs.site.pages import Page, link, slug

IMPORTS = re.compile(r"(?:from|import) \w")  # how a cell begins that imports what the lesson needs
NOT_PREDICTED = "{}. (You made no prediction.)"  # what `compare` has printed in a lesson that ran without a student


def ask_in_browser(cells: list[dict[str, Any]]) -> None:
    """Replace the output of `predict`, `compare`, `review` and `exit_ticket` by forms for the page's script.

    The cells from a question to the text after its `compare` are marked, so that they can be hidden: they tell the
    answer.
    """
    asked: dict[str, str] = {}  # variable -> its question's id
    known: dict[str, Question] = {}
    answers: list[tuple[str, int, int]] = []  # the question's id, its cell, and the cell that compares
    place: dict[str, int] = {}
    for at, cell in enumerate(cells):
        if cell["cell_type"] != "code":
            continue
        for variable, name, argument in _calls("".join(cell["source"])):
            if name == "predict":
                lesson, question = find_prediction(argument)
                if question and question.options:
                    number = f"{lesson}-{len(known)}"
                    asked[variable], known[number], place[number] = number, question, at
                    _show(cell, _form(number, question, {}), replacing="Predict: ")
            elif name == "compare" and argument in asked:
                number = asked[argument]
                question = known[number]
                said = {str(each): reply_to_prediction(each, question.answer, question) for each in question.options}
                _without(cell, NOT_PREDICTED.format(question.answer))
                data = f'data-of="{number}" {_replies(said, question)}'
                _show(cell, f'<p class="compared" {data} role="status"></p>')
                answers.append((number, place[number], at))
            elif name == "exit_ticket":
                forms = _forms(f"{argument}-t", find_lesson(argument).ticket, reply_to_ticket)
                _show(cell, f"<h2>Exit ticket</h2>{forms}", replacing="Exit ticket")
            elif name == "review":
                before = review(argument)
                _show(cell, _forms(f"{argument}-r", before.questions, before.reply_to), replacing="From before")
    for number, first, last in reversed(answers):  # in reverse, since a cell may be divided
        _mark_answer(cells, number, first, last)


SETUP = "setup"  # the tag of a cell that only imports what the lesson needs, and starts it
ASKS = re.compile(r"predict\(|\.compare\(")  # another question, or its answer
ANSWER = "answer-"  # begins the tag of a cell that is hidden until its question is answered


def _mark_answer(cells: list[dict[str, Any]], number: str, first: int, last: int) -> None:
    """Mark the cells after a question that answer it: up to the text after the comparison, without its next heading."""
    end = last + 1
    while end < len(cells) and cells[end]["cell_type"] == "code" and not ASKS.search("".join(cells[end]["source"])):
        end += 1
    if end < len(cells) and cells[end]["cell_type"] == "markdown":
        text, heading, rest = re.split(r"(?m)(^#+ |\Z)", "".join(cells[end]["source"]), maxsplit=1)
        if text.strip():
            cells[end]["source"] = text
            end += 1
            if heading:
                cells.insert(end, nbformat.v4.new_markdown_cell(heading + rest))
    for cell in cells[first + 1 : end]:
        if "predict(" not in "".join(cell["source"]):
            # If two questions hide the same cell, the earlier question decides when it is shown.
            tags = cell.setdefault("metadata", {}).setdefault("tags", [])
            tags[:] = [*(tag for tag in tags if not tag.startswith(ANSWER)), ANSWER + number]


def _hide_answers(soup: BeautifulSoup) -> None:
    """Put the cells that answer a prediction into a fold, which opens when the question is answered."""
    cells = soup.select("div.cell")
    for mark, group in itertools.groupby(cells, key=lambda cell: next((c for c in cell["class"] if ANSWER in c), "")):
        if not mark:
            continue
        fold = soup.new_tag("details", attrs={"class": "answer", "data-of": mark.partition(ANSWER)[2]})
        fold.append(summary := soup.new_tag("summary"))
        summary.string = "Predict first, or show it"
        first, *others = group
        first.wrap(fold)
        fold.insert(0, summary)
        fold.extend(others)


def _forms(prefix: str, questions: Sequence[Question], reply: Callable[[Question, Option], str]) -> str:
    """Return a form for each question, which shows its reply at once."""
    return "".join(
        _form(f"{prefix}{n}", each, {str(option): reply(each, option) for option in each.options})
        for n, each in enumerate(questions)
    )


def _form(number: str, question: Question, said: dict[str, str]) -> str:
    """Return a group of radio buttons; `said` maps each option to the reply that is shown at once."""
    options = "".join(
        f'<label><input type="radio" name="q{number}" value="{escape(str(option), quote=True)}"> '
        f"<span>{escape(str(option))}</span></label>"
        for option in question.options
    )
    return (
        f'<fieldset class="question" data-number="{number}" {_replies(said, question)}>'
        f'<legend>{escape(question.question)}</legend>{options}<p role="status"></p></fieldset>'
    )


def _replies(said: dict[str, str], question: Question) -> str:
    """Return the attributes with the reply to each option, and with the right one."""
    return f'data-said="{escape(json.dumps(said))}" data-answer="{escape(str(question.answer))}"'


def _without(cell: dict[str, Any], line: str) -> None:
    """Remove a line from what a cell printed."""
    for output in cell["outputs"]:
        if "text" in output:
            output["text"] = "".join(output["text"]).replace(f"{line}\n", "")
    cell["outputs"] = [each for each in cell["outputs"] if each.get("text", line)]


def _show(cell: dict[str, Any], html: str, replacing: str | None = None) -> None:
    """Replace the output that begins with `replacing` by HTML, or append the HTML to the cell's outputs."""
    output = {"output_type": "display_data", "data": {"text/html": html, "text/plain": ""}, "metadata": {}}
    outputs = cell["outputs"]
    for place, each in enumerate(outputs):
        if replacing and "".join(each.get("data", {}).get("text/plain", "")).startswith(replacing):
            outputs[place] = {**each, **output} if each["output_type"] == "execute_result" else output
            return
    outputs.append(output)


def _calls(source: str) -> Iterator[tuple[str, str, str]]:
    """Yield (variable, function, argument) of each call: ("twice", "predict", "How …"), ("", "compare", "twice")."""
    tree = ast.parse(re.sub(r"^(\s*)[%!]", r"\1pass  # ", source, flags=re.MULTILINE))
    names = {
        id(node.value): node.targets[0].id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in ("predict", "exit_ticket", "review") and node.args:
            yield names.get(id(node), ""), node.func.id, str(ast.literal_eval(node.args[0]))
        elif (
            isinstance(node.func, ast.Attribute)
            and node.func.attr == "compare"
            and isinstance(node.func.value, ast.Name)
        ):
            yield "", "compare", node.func.value.id


NO_ALTERNATIVE = "No description has been provided for this image"  # what nbconvert writes


@dataclass(frozen=True)
class Section:
    """A part of a page that a search finds: a heading and the text up to the next heading."""

    anchor: str
    heading: str
    level: int
    text: str


@dataclass(frozen=True)
class Rendered:
    html: str
    sections: list[Section]
    questions: int  # that the page asks


def render(page: Page, root: Path, targets: dict[PurePosixPath, PurePosixPath]) -> Rendered:
    """Render one page as the content of `<main>`. A link to a file that is not on the site becomes text."""
    soup = BeautifulSoup(_body(root / page.source), "html.parser")
    for each in soup.select(".anchor-link, .prompt"):
        each.decompose()
    taken: set[str] = set()
    tabulate(soup)
    _hide_answers(soup)
    for setup in soup.select(f".celltag_{SETUP} .input"):
        fold = setup.wrap(soup.new_tag("details", attrs={"class": "setup"}))
        fold.insert(0, BeautifulSoup("<summary>Imports and set-up</summary>", "html.parser"))
    for heading in soup.select("h1, h2, h3, h4, h5, h6"):
        heading["id"] = slug(heading.get_text(), taken)
    for anchor in soup.select("a[href]"):
        leads = link(str(anchor["href"]), page, targets)
        if leads is None:
            anchor.name = "span"
            del anchor["href"]
        else:
            anchor["href"] = leads
    for image in soup.select("img[src]"):
        if not str(image["src"]).startswith("data:"):
            image["src"] = _embedded(root / page.source.parent / str(image["src"]))
        if image.get("alt") in (None, NO_ALTERNATIVE):
            image["alt"] = _what_is_seen(image)
    for wide in soup.select("pre, table"):
        wide["tabindex"] = "0"  # so that it can be scrolled with the keyboard
    return Rendered(str(soup), list(_sections(soup)), len(soup.select("fieldset.question")))


def _body(source: Path) -> str:
    if source.suffix == ".ipynb":
        notebook = nbformat.read(source, as_version=4)
        ask_in_browser(notebook.cells)
        code = [cell for cell in notebook.cells if cell["cell_type"] == "code" and "review(" not in cell["source"]]
        for cell in code:
            imports = IMPORTS.match(cell["source"]) and not re.search(r"def |predict\(", cell["source"])
            if imports and (cell is code[0] or "open_bench(" in cell["source"]):
                cell["metadata"]["tags"] = [*cell["metadata"].get("tags", []), SETUP]
    else:
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(source.read_text(encoding="utf-8"))])
    body, _ = HTMLExporter(template_name="basic").from_notebook_node(notebook)
    return str(body)


def _embedded(picture: Path) -> str:
    """Return a picture as a data URL. Raises ValueError if it is neither PNG nor SVG."""
    kinds = {".png": "image/png", ".svg": "image/svg+xml"}
    if picture.suffix not in kinds:
        raise ValueError(f"{picture} is neither PNG nor SVG; convert it to one of them")
    return f"data:{kinds[picture.suffix]};base64,{base64.b64encode(picture.read_bytes()).decode()}"


def _what_is_seen(image: Tag) -> str:
    """Return a plot's alternative text: the heading above it, and the first paragraph below it."""
    heading = image.find_previous(["h1", "h2", "h3"])
    # Skip empty paragraphs, such as the line for a question's reply.
    said = (each for each in image.find_all_next("p") if each.get_text(strip=True))
    parts = [each.get_text(" ", strip=True) for each in (heading, next(said, None)) if each is not None]
    return "Plot. " + ". ".join(parts)[:300]


def _sections(soup: BeautifulSoup) -> Iterator[Section]:
    """Yield the sections between headings, each with the heading's anchor."""
    anchor, heading, level = "", "", 0
    words: list[str] = []
    for element in soup.find_all(["h1", "h2", "h3", "h4", "p", "li", "td", "pre", "legend"]):
        text = " ".join(element.get_text().split())
        if element.name in ("h1", "h2", "h3", "h4"):
            if words or heading:
                yield Section(anchor, heading, level, " ".join(words))
            anchor, heading, level, words = str(element["id"]), text, int(element.name[1]), []
        elif element.find_parent(class_="answer"):
            continue  # what is hidden on the page is not found either
        elif not (element.name == "p" and element.find_parent(["li", "td"])):
            words.append(text)
    yield Section(anchor, heading, level, " ".join(words))


AUDIT = re.compile(
    r"^audit: (?P<verdict>\w+)(?P<reason> \(.*\))?\n(?P<numbers>(?:  \w+ +[\d,]+(?:\n|\Z))+)", re.MULTILINE
)
CHECK = re.compile(r"^scenario +verdict +lost +doubled +what was done *\n(?:.*\S.*(?:\n|\Z))+", re.MULTILINE)
LOOKS = {"valid": "good", "passed": "good", "invalid": "bad", "failed": "bad"}


def tabulate(soup: BeautifulSoup) -> None:
    """Replace the audits and the checker's tables in the outputs of a page by HTML tables."""
    for shown in soup.select(".output_area pre"):
        text = shown.get_text()
        parts = [(found.start(), found.end(), _of_audit(found)) for found in AUDIT.finditer(text)]
        parts += [(found.start(), found.end(), _of_check(found[0])) for found in CHECK.finditer(text)]
        if not parts:
            continue
        html, done = "", 0
        for start, end, table in sorted(parts):
            html += _as_text(text[done:start]) + table
            done = end
        shown.replace_with(BeautifulSoup(html + _as_text(text[done:]), "html.parser"))


def _as_text(text: str) -> str:
    return f"<pre>{escape(text.strip(chr(10)))}</pre>" if text.strip() else ""


def _of_audit(audit: re.Match[str]) -> str:
    rows = [line.split() for line in audit["numbers"].splitlines()]
    caption = f"audit: {_verdict(audit['verdict'])}{escape(audit['reason'] or '')}"
    return _table([name for name, _ in rows], [[number for _, number in rows]], caption)


def _of_check(table: str) -> str:
    """Return the table as HTML. The text is cut into columns where the names begin in the header."""
    header, *lines = table.splitlines()
    verdict, lost, doubled, done = map(header.index, ("verdict", "lost", "doubled", "what"))
    cuts = [(0, verdict), (verdict, lost), (lost, doubled), (doubled, done), (done, None)]
    rows: list[list[str]] = []
    for line in lines:
        cells = [line[start:end].strip() for start, end in cuts]
        if cells[1] or not rows:
            rows.append(cells)
        else:  # the line above goes on
            rows[-1] = [f"{above} {more}".strip() for above, more in zip(rows[-1], cells, strict=True)]
    return _table([header[start:end].strip() for start, end in cuts], rows)


def _table(names: list[str], rows: list[list[str]], caption: str = "") -> str:
    def cell(text: str) -> str:
        kind = ' class="number"' if re.fullmatch(r"[\d,]+", text) else ""
        return f"<td{kind}>{_verdict(text) if text in LOOKS else escape(text)}</td>"

    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows)
    told = f"<caption>{caption}</caption>" if caption else ""
    return f'<table class="verdict">{told}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _verdict(word: str) -> str:
    return f'<b class="{LOOKS.get(word, "unsure")}">{escape(word)}</b>'
