"""The page to project: a screen for each lesson, whose answer and telling pictures are seen when they are asked for."""

from __future__ import annotations

import base64
import json
import re
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from labs.commands.main import main
from labs.desk.course import Lesson, Question, load_core, load_lessons
from labs.desk.desk import LESSONS
from labs.desk.slides import asked, page, picture_of
from labs.schedules.lesson_pictures import draw_pipeline
from labs.schedules.svg import document
from tests.browser import complaints, findings_of_axe, set_scheme

TWICE = Question("How many are there twice?", 24, (0, 8, 24), {"0": "No.", "8": "No."})
LESSON = Lesson("02", "It <counts> twice", 45, "It writes & writes.", "How many twice?", predictions=(TWICE,))
OTHER = Lesson("03", "It remembers", 60, "It knows its plan.", "Who knows?")
PNG = base64.b64encode(b"\x89PNG the one with the answer").decode()
IDEA = document(40, 20, "the idea", "1. reads\n2. writes & dies", [])


def code(source: str, **data: str) -> dict:
    outputs = [{"output_type": "display_data", "data": {kind.replace("_", "/"): text for kind, text in data.items()}}]
    return {"cell_type": "code", "source": source, "outputs": outputs if data else []}


@pytest.fixture
def notebooks(tmp_path):
    """Write lesson 02 of these cells, and return the directory: `notebooks(*cells)`."""

    def notebooks(*cells: dict) -> Path:
        (tmp_path / "02_twice.ipynb").write_text(json.dumps({"cells": cells}))
        return tmp_path

    return notebooks


ASKS = code('twice = predict("How many are there twice?", [0, 8, 24])')
BEFORE = code("draw_pipeline()", text_html=IDEA._repr_html_())
AFTER = code("plot()", text_plain="<Figure>", image_png=PNG)
HEADING = {"cell_type": "markdown", "source": "## Run\n\nLook."}


def test_picture_is_the_first_of_those_before_the_question(notebooks):
    picture = picture_of(LESSON, notebooks(HEADING, BEFORE, AFTER, ASKS, AFTER))
    assert picture is not None
    assert (picture.words, picture.reveals) == ("1. reads\n2. writes & dies", False)
    assert base64.b64decode(picture.data.partition(",")[2]).decode() == IDEA


def test_picture_that_comes_after_the_question_reveals(notebooks):
    picture = picture_of(LESSON, notebooks(ASKS, HEADING, AFTER, BEFORE))
    assert picture is not None
    assert (picture.data, picture.words, picture.reveals) == (f"data:image/png;base64,{PNG}", "Plot from: Run", True)


def test_lesson_without_a_picture_or_without_a_notebook_gets_that_of_the_pipeline(notebooks):
    directory = notebooks(ASKS)
    assert picture_of(LESSON, directory) is picture_of(OTHER, directory) is None
    assert page([LESSON, OTHER], directory).count(f'alt="{escape(draw_pipeline().words)}"') == 2


class Page(HTMLParser):
    """Collects a page's text and pictures, those below an answer apart."""

    def __init__(self, text: str):
        super().__init__()
        self.parts: dict[bool, list[str]] = {False: [], True: []}
        self._open: list[bool] = []
        self.feed(text)

    @property
    def answering(self) -> bool:
        return any(self._open)

    def handle_starttag(self, tag, attributes):
        if tag == "img":
            self.parts[self.answering].append(dict(attributes)["src"][:15])
        elif tag == "div":
            self._open.append(dict(attributes).get("class") == "answer")

    def handle_endtag(self, tag):
        if tag == "div":
            self._open.pop()

    def handle_data(self, data):
        self.parts[self.answering].append(data.strip(" ·\n"))


def test_answer_claim_and_a_picture_that_reveals_are_behind_the_button(notebooks):
    seen = Page(page([LESSON], notebooks(ASKS, HEADING, AFTER))).parts
    assert {"24", "It writes & writes.", "data:image/png;"} <= set(seen[True])
    assert {"It <counts> twice", "How many twice?", "8", "Show the answer"} <= set(seen[False])
    assert not {"It writes & writes.", "data:image/png;"} & set(seen[False])
    assert "data:image/svg+" in seen[False], "the pipeline, meanwhile"


def test_page_asks_for_nothing_from_outside(notebooks):
    text = page([LESSON, *load_lessons()], LESSONS)
    assert "default-src 'none'" in text
    assert set(re.findall(r"(?:src|href|url\()=?[\"']?([a-z]+:)", text)) <= {"data:"}
    assert not re.search(r"https?:|@import|<link|<script src", text)


def test_core_has_a_screen_for_each_of_its_questions():
    core = load_core()
    text = page([core], LESSONS)
    assert text.count("<section ") == len(core.predictions)
    assert len(set(re.findall(r'<section id="([^"]+)"', text))) == len(core.predictions)
    assert all(escape(each.question) in text for each in core.predictions)


@pytest.mark.parametrize("lesson", load_lessons(), ids=lambda lesson: lesson.number)
def test_each_lesson_has_a_question_to_project_with_an_answer(lesson):
    assert lesson.screen.endswith("?")
    question = asked(lesson)
    assert question is not None
    assert str(question.answer) not in re.findall(r"[\w.]+", lesson.screen), "the question has its answer in it"


@pytest.mark.long
def test_command_writes_the_lessons_that_are_named_and_nobody_elses_file(capsys, tmp_path):
    file = tmp_path / "core.html"
    for _ in range(2):  # its own file it may write again
        assert main(["slides", "02", "--output", str(file)]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{file}: 1 screen"] * 2
    assert file.read_text().count("<section") == 1
    file.write_text("my notes")
    for arguments, why in {
        ("--output", str(file)): "this command did not make it",
        ("--output", str(tmp_path / "none" / "x.html")): "there is no directory",
        ("99",): "there is no lesson '99'",
    }.items():
        assert main(["slides", *arguments]) == 1
        [line] = capsys.readouterr().err.splitlines()
        assert why in line
    assert file.read_text() == "my notes"


@pytest.fixture
def projected(browser, notebooks, tmp_path):
    """Show a lesson with a picture of its own, and one without."""
    file = tmp_path / "slides.html"
    file.write_text(page([LESSON, OTHER], notebooks(BEFORE, ASKS, HEADING, AFTER)))
    browser.get(file.as_uri())
    return browser


@pytest.mark.long
def test_picture_that_reveals_takes_the_place_of_the_other(browser, notebooks, tmp_path):
    plot = code("plot()", text_html=document(900, 1600, "tall", "what came out", [])._repr_html_())
    (tmp_path / "slides.html").write_text(page([LESSON], notebooks(ASKS, plot)))
    browser.get((tmp_path / "slides.html").as_uri())
    shown = "return [...document.images].filter(each => each.checkVisibility()).map(each => each.alt)"
    [before] = browser.execute_script(shown)
    press(browser, Keys.SPACE)
    assert before == draw_pipeline().words
    assert browser.execute_script(shown) == ["what came out"]
    bottom = "return document.querySelector('.answer img').getBoundingClientRect().bottom <= innerHeight"
    assert browser.execute_script(bottom)


def press(driver, *keys: str) -> None:
    driver.find_element(By.TAG_NAME, "body").send_keys(*keys)


def seen(driver) -> list[str]:
    """Return the ids of the screens that are seen, each with + if its answer is."""
    script = """return [...document.querySelectorAll("section")].filter(each => each.checkVisibility()).map(each =>
      each.id + (each.querySelector(".answer").checkVisibility() ? "+" : ""))"""
    return driver.execute_script(script)


@pytest.mark.long
def test_one_screen_is_seen_and_the_button_shows_its_answer(projected):
    assert seen(projected) == ["lesson-02"]
    button = projected.find_element(By.TAG_NAME, "button")
    button.click()
    assert seen(projected) == ["lesson-02+"]
    assert (button.text, button.get_attribute("aria-expanded")) == ("Hide the answer", "true")
    button.click()
    assert seen(projected) == ["lesson-02"]


@pytest.mark.long
@pytest.mark.parametrize("size", [(1280, 900), (1024, 800), (1920, 1080)])
def test_a_screen_needs_no_scrolling_with_its_answer_either(projected, size):
    projected.set_window_size(*size)
    press(projected, Keys.SPACE)
    bottom = "return document.querySelector('.open .answer').getBoundingClientRect().bottom"
    top_of_footer = "return document.querySelector('footer').getBoundingClientRect().top"
    assert 0 < projected.execute_script(bottom) <= projected.execute_script(top_of_footer)
    assert projected.execute_script("return document.querySelector('.shown img').getBoundingClientRect().height") > 100


@pytest.mark.long
def test_keyboard_alone_suffices(projected):
    for key, expected in (
        (Keys.SPACE, "lesson-02+"),
        (Keys.SPACE, "lesson-02"),
        (Keys.ARROW_RIGHT, "lesson-03"),
        (Keys.ARROW_RIGHT, "lesson-03"),
        (Keys.HOME, "lesson-02"),
        (Keys.PAGE_DOWN, "lesson-03"),
    ):
        press(projected, key)
        assert seen(projected) == [expected], key
    projected.switch_to.active_element.send_keys(Keys.ENTER)  # the button has the focus
    assert seen(projected) == ["lesson-03+"]
    assert projected.current_url.endswith("#lesson-03")


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_in_the_light_and_in_the_dark(projected, scheme):
    set_scheme(projected, scheme)
    colours = set()
    for _ in range(2):  # as the system has it, and the other way
        press(projected, Keys.SPACE)
        assert findings_of_axe(projected) == []
        colours.add(projected.execute_script("return getComputedStyle(document.body).backgroundColor"))
        press(projected, "d")
    assert len(colours) == 2
    assert complaints(projected) == []
