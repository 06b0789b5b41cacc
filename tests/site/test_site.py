"""The site: every link leads somewhere, it asks no other host for anything, it can be searched and answered."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
from bs4 import BeautifulSoup
from nbformat import NotebookNode
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from labs.desk.course import load_lessons
from labs.schedules.timeline.timeline import timeline
from labs.site.build import ROOT, build
from labs.site.pages import HOME, Page, find_pages, link, targets_of
from labs.site.render import ask_in_browser, render
from tests.browser import complaints, findings_of_axe, set_scheme, wait_for

LESSON = "notebooks/03_a_restart_counts_twice.html"
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    target = tmp_path_factory.mktemp("somewhere else") / "sub path" / "site"
    built = build(target)
    assert built.bytes < 30e6
    return target


@pytest.fixture(scope="module")
def soups(site):
    return {path: BeautifulSoup(path.read_text(), "html.parser") for path in site.rglob("*.html")}


@pytest.mark.long
def test_every_lesson_and_page_is_there(site):
    pages = find_pages(ROOT)
    assert len(pages) > 20
    assert {page.group for page in pages} == {"", "Course", "Practice", "Pages"}
    assert all((site / page.target).exists() for page in pages)


@pytest.mark.long
def test_every_link_and_anchor_leads_somewhere(soups):
    dead = []
    for path, soup in soups.items():
        for each in soup.select("a[href]"):
            href = urlsplit(str(each["href"]))
            if href.scheme:
                continue
            file = (path.parent / unquote(href.path)).resolve() if href.path else path
            if file not in soups:
                dead.append(f"{path.name}: {each['href']}")
            elif href.fragment and not soups[file].find(id=unquote(href.fragment)):
                dead.append(f"{path.name}: {each['href']}: no such anchor")
    assert dead == []


@pytest.mark.long
def test_it_asks_no_other_host_for_anything(site, soups):
    asked = []
    for path, soup in soups.items():
        for each in soup.select("[src], link[href]"):
            target = str(each.get("src") or each.get("href"))
            if not target.startswith("data:") and not (path.parent / target).exists():
                asked.append(f"{path.name}: {target[:80]}")
    style = "".join(path.read_text() for path in site.glob("*.css"))
    assert asked == re.findall(r"@import|url\([^d]", style) == []
    assert not re.search(r"fetch\(|XMLHttpRequest|import\(", (site / "site.js").read_text())


@pytest.mark.long
def test_every_picture_has_a_text_alternative(soups):
    images = [(path.name, image) for path, soup in soups.items() for image in soup.select("img")]
    assert len(images) > 10
    assert [name for name, image in images if len(str(image.get("alt", ""))) < 20] == []


def test_links_lead_on_and_files_that_are_not_on_the_site_are_text():
    pages = {page.source: page for page in find_pages(ROOT)}
    targets = targets_of(pages.values())
    lesson = next(page for page in pages.values() if page.source.name.startswith("02_"))
    assert link("../docs/glossary.md#epoch", lesson, targets) == "../docs/glossary.html#epoch"
    assert link("exercises/1_commit_order.ipynb", lesson, targets) == "../notebooks/exercises/1_commit_order.html"
    assert link("../README.md", lesson, targets) == "../index.html"
    assert link("../LICENSE", lesson, targets) is None
    assert link("#run", lesson, targets) == "#run"
    assert link("mailto:a@example.org", lesson, targets) == "mailto:a@example.org"
    assert targets[PurePosixPath("README.md")] == PurePosixPath("index.html")


def test_pages_are_listed_by_their_number():
    names = [page.source.name for page in find_pages(ROOT) if page.source.parent.name == "exercises"]
    numbers = [int(name.partition("_")[0]) for name in names if name[0].isdigit()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert names[: len(numbers)] == [name for name in names if name[0].isdigit()]


@pytest.mark.long
def test_list_of_pages_stays_in_sight_with_the_present_page_in_it(browser, site):
    open_page(browser, site, "docs/sink.html")
    browser.execute_script("scrollTo(0, 2000)")
    place = "return document.querySelector('#pages [aria-current]').getBoundingClientRect().top"
    assert 100 < browser.execute_script(place) < 800


@pytest.mark.long
def test_contents_of_a_lesson_stay_in_sight_at_its_right(browser, site):
    open_page(browser, site, LESSON)  # 1280 pixels wide
    browser.execute_script("scrollTo(0, 2000)")
    place = "const { left, right, top } = document.querySelector(arguments[0]).getBoundingClientRect(); "
    place += "return { left, right, top }"
    text, first = (browser.execute_script(place, each) for each in ("main", "#contents a"))
    assert text["right"] <= first["left"] < first["right"] <= 1280
    assert 0 < first["top"] < 200


@pytest.mark.long
def test_list_of_pages_is_a_drawer_where_the_screen_is_narrow(browser, site):
    browser.set_window_size(390, 844)
    open_page(browser, site, LESSON)
    assert browser.execute_script("return document.querySelector('h1').getBoundingClientRect().top") < 200
    pages = browser.find_element(By.ID, "pages")
    assert not pages.is_displayed()
    drawer = browser.find_element(By.CSS_SELECTOR, ".drawer")
    drawer.send_keys(Keys.ENTER)
    assert pages.is_displayed()
    drawer.send_keys(Keys.TAB)
    assert browser.switch_to.active_element.find_elements(By.XPATH, "ancestor::nav[@id='pages']")
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not pages.is_displayed()


@pytest.mark.long
def test_no_page_is_wider_than_its_screen(browser, site, soups):
    wide = []
    try:
        for path in soups:
            open_page(browser, site, str(path.relative_to(site)))
            for width in (390, 768, 1280, 1920):
                screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 1000}
                browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
                if browser.execute_script("return document.documentElement.scrollWidth") > width:
                    wide.append((path.name, width))
        assert wide == []
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.long
def test_somebody_elses_folder_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(ValueError, match="is not a site of the lab, so nothing was written"):
        build(tmp_path)
    assert (tmp_path / "thesis.txt").exists()


def code(source: str, *printed: str) -> NotebookNode:
    shown = [nbformat.v4.new_output("stream", text=text) for text in printed]
    return nbformat.v4.new_code_cell(source, outputs=shown)


def test_an_answer_is_hidden_until_the_question_is_answered_and_is_not_found(tmp_path):
    asked = next(lesson for lesson in load_lessons() if lesson.number == "03").predictions[0]
    cells = [
        nbformat.v4.new_markdown_cell("# A lesson"),
        code(f"twice = predict({asked.question!r}, [])"),
        code("audit()", "the run says it"),
        code("twice.compare(24)", f"{asked.answer}. (You made no prediction.)\nand more\n"),
        nbformat.v4.new_markdown_cell("The reason for it\n\n## What comes then\n\nis open"),
    ]
    (tmp_path / "02_a_lesson.ipynb").write_text(nbformat.writes(nbformat.v4.new_notebook(cells=cells)))
    page = Page(PurePosixPath("02_a_lesson.ipynb"), PurePosixPath("02_a_lesson.html"), "A lesson")
    rendered = render(page, tmp_path, {})
    [fold] = BeautifulSoup(rendered.html, "html.parser").select("details.answer:not([open])")
    words = " ".join(fold.get_text().split())
    assert all(
        each in words for each in ("Predict first, or show it", "the run says it", "and more", "The reason for it")
    )
    assert "What comes then" not in words
    assert "You made no prediction" not in rendered.html
    found = " ".join(section.text for section in rendered.sections)
    assert "is open" in found
    assert not any(each in found for each in ("the run says it", "The reason for it"))


def test_questions_that_wait_for_each_other_keep_their_own_answers():
    first, second = next(lesson for lesson in load_lessons() if lesson.number == "03").predictions[:2]
    cells: list[dict[str, Any]] = [
        code(f"one = predict({first.question!r}, [])"),
        code(f"two = predict({second.question!r}, [])"),
        code("one.compare(24)"),
        code("two.compare(24)"),
    ]
    ask_in_browser(cells)
    tags = [cell["metadata"].get("tags", []) for cell in cells]
    assert tags == [[], [], ["answer-03-0"], ["answer-03-1"]]


def test_code_is_found_as_it_is_written(tmp_path):
    (tmp_path / "02.ipynb").write_text(nbformat.writes(nbformat.v4.new_notebook(cells=[code("bench = open_bench()")])))
    page = Page(PurePosixPath("02.ipynb"), PurePosixPath("02.html"), "A lesson")
    assert "bench = open_bench()" in render(page, tmp_path, {}).sections[0].text


def test_a_lesson_without_questions_stays_as_it_is():
    cell = {"cell_type": "code", "source": "%matplotlib inline\nx = 1", "outputs": []}
    ask_in_browser([cell])
    assert cell["outputs"] == []


@pytest.mark.long
def test_the_picture_of_a_timeline_becomes_live_where_there_is_one(browser, tmp_path):
    html = timeline("the sink")._repr_mimebundle_()[0]["text/html"]
    shown = nbformat.v4.new_output("execute_result", {"text/html": html})
    cells = [nbformat.v4.new_markdown_cell("# A lesson"), nbformat.v4.new_code_cell("timeline()", outputs=[shown])]
    (tmp_path / "notebooks").mkdir()
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "notebooks" / "02_a_lesson.ipynb")
    front_page(tmp_path, "# The lab\n")
    build(tmp_path / "site", tmp_path)
    assert "timeline.js" not in (tmp_path / "site" / "index.html").read_text()
    open_page(browser, tmp_path / "site", "notebooks/02_a_lesson.html")
    wait_for(browser, "return document.querySelector('.eo-timeline [role=slider]')?.ariaValueText")
    assert (complaints(browser), findings_of_axe(browser)) == ([], [])


def front_page(root: Path, text: str) -> None:
    (root / HOME).parent.mkdir(parents=True)
    (root / HOME).write_text(text)


def open_page(browser, site: Path, page: str):
    browser.get((site / page).as_uri())
    wait_for(browser, "return typeof INDEX === 'object'")
    return browser


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_can_be_read_by_everybody_and_complain_of_nothing(browser, site, scheme):
    set_scheme(browser, scheme)
    for page in ("index.html", LESSON, "docs/glossary.html", "notebooks/exercises/1_commit_order.html"):
        open_page(browser, site, page)
        assert findings_of_axe(browser) == [], page
        assert complaints(browser) == [], page


@pytest.mark.long
@pytest.mark.soak
@pytest.mark.timeout(1_200)
def test_each_page_can_be_read_by_everybody_with_all_its_folds_open(browser, site, soups):
    for path in soups:
        open_page(browser, site, str(path.relative_to(site)))
        browser.execute_script("document.querySelectorAll('details').forEach((each) => (each.open = true))")
        assert (findings_of_axe(browser), complaints(browser)) == ([], []), path.name


@pytest.mark.long
def test_a_recorded_session_of_the_room_plays_to_its_end(browser, site):
    open_page(browser, site, "docs/operations-room.html")
    assert len(browser.find_elements(By.CSS_SELECTOR, ".eo-room .eo-play")) == 2
    assert browser.find_elements(By.CSS_SELECTOR, "img[data-room]") == []
    end = """
    const slider = document.querySelector(".eo-seek");
    slider.value = slider.max - 1;
    slider.dispatchEvent(new Event("input"));
    document.querySelector(".eo-play").click();
    """
    browser.execute_script(end)
    wait_for(browser, "return document.querySelector('.eo-verdict .eo-title').textContent === 'Final verdict'")
    wait_for(browser, "return document.querySelector('.eo-play').textContent === 'Play'")
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert (findings_of_axe(browser), complaints(browser)) == ([], [])


@pytest.mark.long
def test_front_page_plays_a_recording_from_its_first_kill(browser, site):
    open_page(browser, site, "index.html")
    wait_for(browser, "return document.querySelector('.eo-clock')?.textContent.startsWith('6.')")
    assert browser.find_elements(By.CSS_SELECTOR, ".eo-chronicle li") == []
    browser.execute_script("document.querySelector('.eo-play').click()")
    wait_for(browser, "return document.querySelector('.eo-what')?.textContent.startsWith('driver 1 was killed')")


@pytest.mark.long
def test_a_page_that_plays_a_recording_that_is_not_there_is_refused(tmp_path):
    still = """<img data-room='{"recording": "lost"}' src="data:," alt="a room, and what was struck in it">"""
    front_page(tmp_path, f"# The lab\n\n{still}\n")
    with pytest.raises(ValueError, match=r"plays the recording 'lost', and there is no docs/recordings/lost\.json"):
        build(tmp_path / "site", tmp_path)


@pytest.mark.long
def test_a_search_by_keyboard_finds_a_term_and_leads_to_it(browser, site):
    open_page(browser, site, LESSON)
    browser.find_element(By.TAG_NAME, "body").send_keys("/")
    browser.switch_to.active_element.send_keys("last stable offset")
    wait_for(browser, "return document.querySelectorAll('#found a').length")
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    first = browser.switch_to.active_element
    assert first.tag_name == "a"
    assert "glossary" in first.get_attribute("href")
    first.send_keys(Keys.ENTER)
    wait_for(browser, "return location.href.includes('docs/glossary.html#')")
    open_page(browser, site, LESSON)
    browser.find_element(By.ID, "words").send_keys("xyzzy")
    wait_for(browser, "return document.getElementById('found').textContent.includes('Nothing is said of')")


@pytest.mark.long
def test_a_prediction_is_noted_and_answered_where_the_lesson_compares_it(browser, site):
    open_page(browser, site, LESSON)
    # The two questions before it are from earlier lessons.
    question = browser.find_element(By.CSS_SELECTOR, "fieldset.question:has(input[value='24'])")
    compared = browser.find_element(By.CSS_SELECTOR, ".compared")
    assert not compared.is_displayed()
    option = question.find_element(By.CSS_SELECTOR, "input[value='8']")
    option.send_keys(Keys.SPACE)
    assert "Noted: 8." in question.text
    assert compared.text.startswith("24. You said 8: ")
    assert compared.get_attribute("data-right") == "false"
    question.find_element(By.CSS_SELECTOR, "input[value='24']").send_keys(Keys.SPACE)
    assert compared.text == "24. You said so."
    assert compared.get_attribute("data-right") == "true"


@pytest.mark.long
def test_answers_are_kept_and_counted_in_the_list_of_lessons_until_they_are_forgotten(browser, site, soups):
    open_page(browser, site, LESSON)
    option = "fieldset.question[data-number='03-0'] input[value='8']"
    browser.find_element(By.CSS_SELECTOR, option).send_keys(Keys.SPACE)
    open_page(browser, site, "index.html")
    answered = f".answered[data-page='{LESSON}']"
    asked = len(soups[site / LESSON].select("fieldset.question"))
    assert browser.find_element(By.CSS_SELECTOR, answered).text == f"1 of {asked} questions"
    open_page(browser, site, LESSON)
    assert browser.find_element(By.CSS_SELECTOR, option).is_selected()
    assert browser.find_element(By.CSS_SELECTOR, ".compared").text.startswith("24. You said 8: ")
    browser.execute_script("document.querySelector('#forget').click()")
    wait_for(browser, f'return !document.querySelector("{option}:checked")')
    assert not browser.find_element(By.CSS_SELECTOR, answered).is_displayed()
    assert not browser.find_element(By.ID, "forget").is_displayed()


@pytest.mark.long
def test_an_exit_ticket_is_marked_at_once(browser, site):
    open_page(browser, site, LESSON)
    question = browser.find_element(By.CSS_SELECTOR, "fieldset.question[data-number='03-t0']")
    for label in question.find_elements(By.TAG_NAME, "label"):
        label.click()
        assert question.find_element(By.CSS_SELECTOR, "[role=status]").text.startswith(("Right.", "Incorrect. "))


def test_first_cell_of_a_lesson_is_folded_if_it_only_imports_and_starts(tmp_path):
    cells = [code("from labs.lesson import open_bench\nbench = open_bench()"), code("import json\nprint(1)", "1\n")]
    (tmp_path / "02.ipynb").write_text(nbformat.writes(nbformat.v4.new_notebook(cells=cells)))
    page = Page(PurePosixPath("02.ipynb"), PurePosixPath("02.html"), "A lesson")
    [fold] = BeautifulSoup(render(page, tmp_path, {}).html, "html.parser").select("details.setup")
    assert "open_bench" in fold.get_text()
    assert "json" not in fold.get_text()
