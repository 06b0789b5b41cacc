"""The site: every link leads somewhere, it asks no other host for anything, it can be searched and answered."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
from bs4 import BeautifulSoup
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from labs.schedules.timeline.timeline import timeline
from labs.site.build import ROOT, build
from labs.site.pages import find_pages, link
from labs.site.questions import ask_in_browser
from tests.browser import complaints, findings_of_axe, set_scheme, wait_for

LESSON = "notebooks/02_a_restart_counts_twice.html"
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
    targets = {source: page.target for source, page in pages.items()}
    lesson = next(page for page in pages.values() if page.source.name.startswith("02_"))
    assert link("../docs/glossary.md#epoch", lesson, targets) == "../docs/glossary.html#epoch"
    assert link("exercises/1_commit_order.ipynb", lesson, targets) == "../notebooks/exercises/1_commit_order.html"
    assert link("../README.md", lesson, targets) == "../index.html"
    assert link("../LICENSE", lesson, targets) is None
    assert link("#run", lesson, targets) == "#run"
    assert link("mailto:a@example.org", lesson, targets) == "mailto:a@example.org"
    assert targets[PurePosixPath("README.md")] == PurePosixPath("index.html")


@pytest.mark.long
def test_somebody_elses_folder_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(ValueError, match="is no site of the lab's: nothing was written"):
        build(tmp_path)
    assert (tmp_path / "thesis.txt").exists()


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
    (tmp_path / "README.md").write_text("# The lab\n")
    build(tmp_path / "site", tmp_path)
    assert "timeline.js" not in (tmp_path / "site" / "index.html").read_text()
    open_page(browser, tmp_path / "site", "notebooks/02_a_lesson.html")
    wait_for(browser, "return document.querySelector('.eo-timeline [role=slider]')?.ariaValueText")
    assert (complaints(browser), findings_of_axe(browser)) == ([], [])


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
    wait_for(browser, "return document.querySelector('.eo-report').textContent.includes('final report: valid')")
    wait_for(browser, "return document.querySelector('.eo-play').textContent === 'Play'")
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert (findings_of_axe(browser), complaints(browser)) == ([], [])


@pytest.mark.long
def test_a_page_that_plays_a_recording_that_is_not_there_is_refused(tmp_path):
    still = """<img data-room='{"recording": "lost"}' src="data:," alt="a room, and what was struck in it">"""
    (tmp_path / "README.md").write_text(f"# The lab\n\n{still}\n")
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
    question = browser.find_element(By.CSS_SELECTOR, "fieldset.question")
    option = question.find_element(By.CSS_SELECTOR, "input[value='8']")
    option.send_keys(Keys.SPACE)
    assert "Noted: 8." in question.text
    compared = browser.find_element(By.CSS_SELECTOR, ".compared")
    assert compared.text.startswith("You said 8. ")
    question.find_element(By.CSS_SELECTOR, "input[value='24']").send_keys(Keys.SPACE)
    assert compared.text == "You said 24, and so it is."


@pytest.mark.long
def test_an_exit_ticket_is_marked_at_once(browser, site):
    open_page(browser, site, LESSON)
    question = browser.find_element(By.CSS_SELECTOR, "fieldset.question[data-number='02-t0']")
    for label in question.find_elements(By.TAG_NAME, "label"):
        label.click()
        assert question.find_element(By.CSS_SELECTOR, "[role=status]").text.startswith(("Right.", "Not so. "))
