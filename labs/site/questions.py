"""Predictions and exit tickets of a published lesson: the browser asks them itself, since there is no kernel to ask."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from html import escape
from typing import Any

from labs.desk.course import Question, find_lesson, find_prediction
from labs.desk.ticket import words_for


def ask_in_browser(cells: list[dict[str, Any]]) -> None:
    """Replace what `predict`, `compare` and `exit_ticket` printed by what the page's script works with."""
    asked: dict[str, str] = {}  # variable -> its question's id
    known: dict[str, Question] = {}
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        for variable, name, argument in _calls("".join(cell["source"])):
            if name == "predict":
                lesson, question = find_prediction(argument)
                if question and question.options:
                    number = f"{lesson}-{len(known)}"
                    asked[variable], known[number] = number, question
                    _show(cell, _form(number, question, {}), replacing="Predict: ")
            elif name == "compare" and argument in asked:
                number = asked[argument]
                said = {str(option): _compared(known[number], option) for option in known[number].options}
                values = escape(json.dumps(said), quote=True)
                _show(cell, f'<p class="compared" data-of="{number}" data-said="{values}" role="status"></p>')
            elif name == "exit_ticket":
                forms = [
                    _form(f"{argument}-t{n}", each, {str(option): words_for(each, option) for option in each.options})
                    for n, each in enumerate(find_lesson(argument).ticket)
                ]
                _show(cell, f"<h2>Exit ticket</h2>{''.join(forms)}", replacing="Exit ticket")


def _compared(question: Question, option: Any) -> str:
    if option == question.answer:
        return f"You said {option}, and so it is."
    return f"You said {option}. {question.reply_to(option)}"


def _form(number: str, question: Question, said: dict[str, str]) -> str:
    """Return a group of radio buttons; with `said`, what is said at once to each answer."""
    options = "".join(
        f'<label><input type="radio" name="q{number}" value="{escape(str(option), quote=True)}"> '
        f"<span>{escape(str(option))}</span></label>"
        for option in question.options
    )
    values = escape(json.dumps(said), quote=True)
    return (
        f'<fieldset class="question" data-number="{number}" data-said="{values}">'
        f'<legend>{escape(question.question)}</legend>{options}<p role="status"></p></fieldset>'
    )


def _show(cell: dict[str, Any], html: str, replacing: str | None = None) -> None:
    """Put HTML in the place of the output that begins with `replacing`, or behind what the cell printed."""
    output = {"output_type": "display_data", "data": {"text/html": html, "text/plain": ""}, "metadata": {}}
    outputs = cell["outputs"]
    for place, each in enumerate(outputs):
        if replacing and "".join(each.get("data", {}).get("text/plain", "")).startswith(replacing):
            outputs[place] = {**each, **output} if each["output_type"] == "execute_result" else output
            return
    outputs.append(output)


def _calls(source: str) -> Iterator[tuple[str, str, str]]:
    """Yield (variable, function, argument) of what asks: ("twice", "predict", "How …"), ("", "compare", "twice")."""
    tree = ast.parse(re.sub(r"^(\s*)[%!]", r"\1pass  # ", source, flags=re.MULTILINE))
    names = {
        id(node.value): node.targets[0].id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in ("predict", "exit_ticket") and node.args:
            yield names.get(id(node), ""), node.func.id, str(ast.literal_eval(node.args[0]))
        elif (
            isinstance(node.func, ast.Attribute)
            and node.func.attr == "compare"
            and isinstance(node.func.value, ast.Name)
        ):
            yield "", "compare", node.func.value.id
