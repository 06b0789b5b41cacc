"""The browser of the tests: it shows widgets without a kernel, loads nothing, and finds what is hard to see."""

from __future__ import annotations

import anywidget
import pytest
import traitlets
from selenium.webdriver.common.by import By

from tests import browser as browsers
from tests.browser import complaints, findings_of_axe, missing_browser, set_scheme, static_page, wait_for

COUNTER = """
export default { render({ model, el }) {
  const button = document.createElement("button");
  const show = () => { button.textContent = `pressed ${model.get("times")} </script> times`; };
  button.onclick = () => { model.set("times", model.get("times") + 1); model.save_changes(); };
  model.on("change:times", show);
  show();
  el.append(button);
} };
"""


class Counter(anywidget.AnyWidget):
    _esm = COUNTER
    _css = "button { color: %s; background: #FFFFFF } @media (prefers-color-scheme: dark) { button { color: #010203 } }"
    times = traitlets.Int(3).tag(sync=True)

    def __init__(self, colour: str = "#222222", esm: str = COUNTER):
        super().__init__(_esm=esm, _css=self._css % colour)


def opened(browser, page: str):
    browser.get(page)
    wait_for(browser, "return document.body.dataset.ready")
    return browser.find_element(By.TAG_NAME, "button")


@pytest.mark.long
def test_widget_works_without_a_kernel(browser, tmp_path):
    button = opened(browser, static_page(tmp_path, {"counter": Counter()}))
    button.click()
    assert button.text == "pressed 4 </script> times"
    assert browser.execute_script("return models.counter.get('times')") == 4
    assert (complaints(browser), findings_of_axe(browser)) == ([], [])


@pytest.mark.long
def test_what_is_hard_to_see_is_found(browser, tmp_path):
    opened(browser, static_page(tmp_path, {"counter": Counter(colour="#DDDDDD")}))
    assert [each.partition(" ")[0] for each in findings_of_axe(browser)] == ["color-contrast"]


@pytest.mark.long
def test_page_that_loads_something_from_elsewhere_complains(browser, tmp_path):
    esm = COUNTER.replace("show();\n", "show(); fetch('http://localhost:9').catch(() => 0);\n", 1)
    opened(browser, static_page(tmp_path, {"counter": Counter(esm=esm)}))
    assert "Content Security Policy" in "".join(complaints(browser))


@pytest.mark.long
def test_light_and_dark(browser, tmp_path):
    button = opened(browser, static_page(tmp_path, {"counter": Counter()}))
    assert "34, 34, 34" in button.value_of_css_property("color")
    set_scheme(browser, "dark")
    assert "1, 2, 3" in button.value_of_css_property("color")


@pytest.mark.parametrize(("there", "missing"), [((), "no browser: "), (("chromium",), "without its driver: ")])
def test_what_is_missing_is_said(monkeypatch, there, missing):
    monkeypatch.setattr(browsers.shutil, "which", lambda name, path=None: name if name in there else None)
    assert missing in missing_browser()
