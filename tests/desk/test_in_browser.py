"""Predictions and exit tickets in a real JupyterLab: clicked, kept over a restart, answered, by keyboard alone."""

from __future__ import annotations

import json

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from labs.desk.course import load_lessons
from labs.desk.progress import MANIFEST, NOTES
from labs.desk.questions import QuestionForm
from tests.browser import findings_of_axe, set_scheme, static_page, wait_for

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


def option(page, text, question=ASKED.question):
    """Return the radio button of an option: other questions may have the same."""
    wait_for(page, "return document.querySelector('fieldset.question')")
    forms = page.find_elements(By.CSS_SELECTOR, "fieldset.question")
    asked = [form for form in forms if " ".join(form.text.split()).startswith(" ".join(question.split()))]
    buttons = asked[-1].find_elements(By.CSS_SELECTOR, "[type=radio]")
    return next(each for each in buttons if each.get_attribute("value") == str(text))


def shown(page) -> str:
    return page.execute_script("return document.querySelector('.jp-Notebook').innerText")


def notes(jupyterlab) -> list[dict]:
    return [json.loads(line) for line in (jupyterlab.directory / NOTES).read_text().splitlines()]


def test_a_click_is_noted_kept_over_a_restart_of_the_kernel_and_answered(page, jupyterlab):
    jupyterlab.run(page, "notebook:run-cell")
    option(page, WRONG).click()
    wait_for(page, f"return document.body.innerText.includes({f'Noted: {WRONG}.'!r})")
    assert [note["said"] for note in notes(jupyterlab)] == [WRONG]

    kernel = "window.jupyterapp.shell.currentWidget.sessionContext.session.kernel"
    page.execute_async_script(f"{kernel}.restart().then(arguments[0])")
    wait_for(page, f"return {kernel}.status == 'idle'")
    jupyterlab.run(page)
    wait_for(page, f"return document.body.innerText.includes({f'You said {WRONG}: '!r})")
    assert ASKED.reply_to(WRONG).split(".")[0] in " ".join(shown(page).split())
    chosen = page.find_element(By.CSS_SELECTOR, "fieldset.question :checked")
    assert chosen.get_attribute("value") == str(WRONG)
    assert not chosen.is_enabled(), "after the comparison there is nothing left to predict"


def test_the_keyboard_alone_suffices(page, jupyterlab):
    jupyterlab.run(page, "notebook:run-cell")
    target = option(page, ASKED.answer)
    first = target.find_element(By.XPATH, "ancestor::fieldset//input")
    page.execute_script("arguments[0].focus()", first)
    keys = ActionChains(page).send_keys(Keys.SPACE)
    for _ in range(ASKED.options.index(ASKED.answer)):
        keys.send_keys(Keys.ARROW_DOWN)
    keys.perform()
    wait_for(page, f"return document.body.innerText.includes({f'Noted: {ASKED.answer}.'!r})")


def test_run_all_asks_nothing_and_the_exit_ticket_is_marked_at_a_click(page, jupyterlab):
    jupyterlab.run(page)
    assert f"{ASKED.answer}. (You made no prediction.)" in shown(page)
    first = LESSON.ticket[0]
    wrong = next(option for option in first.options if option != first.answer)
    option(page, wrong, first.question).click()
    wait_for(page, "return document.body.innerText.includes('Incorrect.')")
    option(page, first.answer, first.question).click()
    wait_for(page, "return document.body.innerText.includes('Right.')")
    assert [note["right"] for note in notes(jupyterlab)] == [False, True]


def test_widgets_can_be_used_by_who_sees_badly(page, jupyterlab):
    jupyterlab.run(page)
    wait_for(page, "return document.querySelectorAll('.jp-OutputArea fieldset.question').length >= 2")
    assert findings_of_axe(page, ".jp-OutputArea") == []


@pytest.mark.parametrize("dark", [False, True])
def test_question_shows_by_sign_and_colour_whether_the_answer_was_right(browser, tmp_path, dark):
    set_scheme(browser, "dark" if dark else "light")
    asked = QuestionForm(question="A question that is longer than its box is wide. " * 5, options=["1", "2", "3"])
    browser.get(static_page(tmp_path, {"asked": asked}, dark=dark))
    wait_for(browser, "return document.body.dataset.ready")
    if dark:
        browser.execute_script("document.documentElement.style.colorScheme = 'dark'")
    browser.find_element(By.CSS_SELECTOR, "[value='1']").send_keys(Keys.SPACE)
    browser.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    assert browser.execute_script("return models.asked.get('said')") == "2"
    sign = "return getComputedStyle(document.querySelector('[role=status]'), '::before').content"
    for right, shown in (("true", "✓"), ("false", "✗")):
        browser.execute_script(f"models.asked.set('reply', 'Because.'); models.asked.set('right', '{right}')")
        assert shown in browser.execute_script(sign)
        assert findings_of_axe(browser) == []
    box, words = (browser.find_element(By.CSS_SELECTOR, each).rect for each in ("fieldset", "legend"))
    assert box["y"] < words["y"], "the question crosses the border of its box"
