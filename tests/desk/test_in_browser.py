"""Predictions and exit tickets in a real JupyterLab: clicked, kept over a restart, answered, by keyboard alone."""

from __future__ import annotations

import json

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from labs.desk.course import load_lessons
from labs.desk.notes import MANIFEST, NOTES
from tests.browser import findings_of_axe, wait_for

LESSON = next(lesson for lesson in load_lessons() if lesson.predictions and lesson.predictions[0].options)
ASKED = LESSON.predictions[0]
WRONG = next(option for option in ASKED.options if option != ASKED.answer)
CELLS = [
    f"from labs.lesson import exit_ticket, predict\nasked = predict({ASKED.question!r}, {list(ASKED.options)!r})",
    f"asked.compare({ASKED.answer!r})",
    f"exit_ticket({LESSON.number!r})",
]
pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture
def page(browser, jupyterlab):
    (jupyterlab.directory / MANIFEST).write_text("{}")
    (jupyterlab.directory / NOTES).unlink(missing_ok=True)
    jupyterlab.open(browser, CELLS, "lesson.ipynb")
    return browser


def button(page, text, question=ASKED.question):
    """Return the button of an option: other questions may have the same."""
    wait_for(page, "return document.querySelector('.widget-toggle-button')")
    boxes = page.find_elements(By.CSS_SELECTOR, ".widget-vbox")
    asked = [box for box in boxes if " ".join(box.text.split()).startswith(" ".join(question.split()))]
    buttons = asked[-1].find_elements(By.CSS_SELECTOR, ".widget-toggle-button")
    return next(each for each in buttons if each.text == str(text))


def shown(page) -> str:
    return page.execute_script("return document.querySelector('.jp-Notebook').innerText")


def notes(jupyterlab) -> list[dict]:
    return [json.loads(line) for line in (jupyterlab.directory / NOTES).read_text().splitlines()]


def test_a_click_is_noted_kept_over_a_restart_of_the_kernel_and_answered(page, jupyterlab):
    jupyterlab.run(page, "notebook:run-cell")
    button(page, WRONG).click()
    wait_for(page, f"return document.body.innerText.includes({f'Noted: {WRONG}.'!r})")
    assert [note["said"] for note in notes(jupyterlab)] == [WRONG]

    kernel = "window.jupyterapp.shell.currentWidget.sessionContext.session.kernel"
    page.execute_async_script(f"{kernel}.restart().then(arguments[0])")
    wait_for(page, f"return {kernel}.status == 'idle'")
    jupyterlab.run(page)
    wait_for(page, f"return document.body.innerText.includes({f'You said {WRONG}: '!r})")
    assert ASKED.reply_to(WRONG).split(".")[0] in " ".join(shown(page).split())
    chosen = page.find_element(By.CSS_SELECTOR, ".widget-toggle-button.mod-active")
    assert chosen.text == str(WRONG)
    assert not chosen.is_enabled(), "after the comparison there is nothing left to predict"


def test_the_keyboard_alone_suffices(page, jupyterlab):
    jupyterlab.run(page, "notebook:run-cell")
    target = button(page, ASKED.answer)
    page.execute_script("arguments[0].parentElement.firstElementChild.focus()", target)
    keys = ActionChains(page)
    for _ in range(ASKED.options.index(ASKED.answer)):
        keys.send_keys(Keys.TAB)
    keys.send_keys(Keys.SPACE).perform()
    wait_for(page, f"return document.body.innerText.includes({f'Noted: {ASKED.answer}.'!r})")


def test_run_all_asks_nothing_and_the_exit_ticket_is_marked_at_a_click(page, jupyterlab):
    jupyterlab.run(page)
    assert f"{ASKED.answer}. (You made no prediction.)" in shown(page)
    first = LESSON.ticket[0]
    wrong = next(option for option in first.options if option != first.answer)
    button(page, wrong, first.question).click()
    wait_for(page, "return document.body.innerText.includes('Not so.')")
    button(page, first.answer, first.question).click()
    wait_for(page, "return document.body.innerText.includes('Right.')")
    assert [note["right"] for note in notes(jupyterlab)] == [False, True]


def test_widgets_can_be_used_by_who_sees_badly(page, jupyterlab):
    jupyterlab.run(page)
    wait_for(page, "return document.querySelectorAll('.jp-OutputArea .widget-vbox').length >= 2")
    assert findings_of_axe(page, ".jp-OutputArea") == []
