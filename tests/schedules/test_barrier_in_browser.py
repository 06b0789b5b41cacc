"""The explorable barrier in a real browser: without a kernel, by mouse and by keys, light and dark."""

from __future__ import annotations

import pytest
from selenium.webdriver import Keys
from selenium.webdriver.common.by import By

from labs.equipment.waiting import eventually
from labs.schedules.barrier_steps import barrier_data, barrier_steps, script
from tests.browser import complaints, findings_of_axe, set_scheme, wait_for

pytestmark = pytest.mark.bench


def test_on_a_published_page_the_picture_becomes_live(browser, tmp_path):
    """As the site does it: a page from a file system, with what a notebook keeps of the widget."""
    shown = barrier_steps("counts on until the last", 0)._repr_mimebundle_()
    picture = (shown[0] if isinstance(shown, tuple) else shown)["text/html"]
    (tmp_path / "barrier.js").write_text(script())
    page = tmp_path / "page.html"
    head = '<html lang="en"><meta charset="utf-8"><title>barrier</title>'
    page.write_text(f'{head}<main><h1>A barrier</h1>{picture}</main><script src="barrier.js"></script>')
    browser.get(page.as_uri())
    wait_for(browser, "return document.querySelector('.eo-barrier')")
    data = barrier_data()

    def said() -> str:
        return browser.find_element(By.CSS_SELECTOR, ".eo-said").text

    assert said() == data["counts on until the last"]["words"][0]
    slider = browser.find_element(By.CSS_SELECTOR, ".eo-barrier input[type=range]")
    slider.send_keys(Keys.END)
    eventually(lambda: "task a 7 of 5" in said(), 5)
    assert browser.find_element(By.CSS_SELECTOR, ".eo-wrong").text == said()
    browser.find_element(By.CSS_SELECTOR, "input[value=aligns]").click()
    slider.send_keys(Keys.END)
    eventually(lambda: "task a 5 of 5" in said(), 5)
    assert not browser.find_elements(By.CSS_SELECTOR, ".eo-wrong")
    for scheme in ("light", "dark"):
        set_scheme(browser, scheme)
        assert findings_of_axe(browser, ".eo-barrier") == []
    assert complaints(browser) == []
