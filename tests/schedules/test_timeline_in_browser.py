"""The timeline in a real browser, without a kernel and in a JupyterLab: by mouse, by finger, by keys alone."""

from __future__ import annotations

import contextlib
import json
import math

import pytest
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.by import By

from labs.equipment.waiting import eventually
from labs.schedules.timeline.timeline import script, timeline, timeline_data
from labs.schedules.timeline.two_batches import (
    BATCHES,
    CRASH,
    LABELS,
    LOST_ACKNOWLEDGEMENT,
    PLACES,
    PRESETS,
    STATIONS,
    Switches,
)
from tests.browser import complaints, findings_of_axe, press, set_scheme, static_page, wait_for

pytestmark = pytest.mark.bench

LAST = len(PLACES) - 1
AFTER_COMMIT = next(n for n, each in enumerate(PLACES) if each.points[:1] == ("after_commit",) and each.batch == 1)
# What stands on the page: where, what a reader sees then and in the end, why, and the steps.
READ = """
const root = document.querySelector(".eo-timeline"), all = (part) => [...root.querySelectorAll(part)];
const text = (part) => all(part).map((each) => each.textContent);
return {
  where: text(".eo-where")[0],
  seen: all(".eo-sight .eo-records").map((each) =>
    [...each.children].map((box) => [Number(box.textContent), box.matches(".eo-again")])),
  verdicts: text(".eo-verdict"),
  wrong: all(".eo-sight").map((each) => each.matches(".eo-wrong")),
  why: text(".eo-why")[0],
  steps: all(".eo-list li").map((each) => each.firstChild.textContent),
};
"""


def expected(switches: Switches, place: int, fault: str = CRASH) -> dict:
    """Return what must stand on the page, from the data that Python has made."""
    data = timeline_data()
    *sights, why, steps = data["outcomes"][data["cases"][fault][switches.key][place]]
    label = next(each["label"] for each in data["faults"] if each["key"] == fault)
    return {
        "where": f"{PLACES[place].name}: {label}",
        "seen": [[[record, record in seen[:n]] for n, record in enumerate(seen)] for seen, _, _ in sights],
        "verdicts": [data["texts"][words] for _, words, _ in sights],
        "wrong": [wrong for _, _, wrong in sights],
        "why": data["texts"][why],
        "steps": [data["texts"][words] for words, *_ in steps],
    }


def assert_shows(browser, switches: Switches, place: int, fault: str = CRASH) -> None:
    """Assert that the case stands on the page, a moment from now: a browser hands pointers on with its next frame."""
    with contextlib.suppress(TimeoutError):
        eventually(lambda: browser.execute_script(READ) == expected(switches, place, fault), 5)
    assert browser.execute_script(READ) == expected(switches, place, fault)


@pytest.fixture
def page(browser, tmp_path):
    """Show the timeline of a stage on a page without a kernel, and return the browser."""

    def page(stage: str = "at least once", **options):
        browser.get(static_page(tmp_path, {"timeline": timeline(stage, **options)}))
        wait_for(browser, "return document.body.dataset.ready")
        return browser

    yield page
    assert complaints(browser) == []


def handle(browser):
    return browser.find_element(By.CSS_SELECTOR, "[role=slider]")


def x_of(browser, place: int) -> float:
    """Return where a place is on the screen."""
    last = max(0, math.ceil(PLACES[place].at * len(STATIONS) * BATCHES) - 1)  # the step that has begun there
    step = browser.execute_script(
        "return document.querySelectorAll('.eo-step')[arguments[0]].getBoundingClientRect()", last
    )
    gap = 2  # between a step and the place after it
    return step["left"] + step["width"] / 2 if PLACES[place].station == "half" else step["right"] + gap


def test_crash_is_dragged_by_mouse(page):
    browser = page()
    assert_shows(browser, PRESETS["at least once"], AFTER_COMMIT)
    drag = ActionChains(browser).click_and_hold(handle(browser))
    at = AFTER_COMMIT
    for place in (13, 4, 0, LAST, 12):
        drag.move_by_offset(round(x_of(browser, place) - x_of(browser, at)), 5).perform()
        assert_shows(browser, PRESETS["at least once"], place)
        drag, at = ActionChains(browser), place
    drag.release().move_by_offset(-300, 0).perform()
    assert browser.execute_script("return models.timeline.get('place')") == 12, "it is still held"


def test_a_click_takes_the_crash_to_the_nearest_place(page):
    browser = page()
    track = browser.find_element(By.CSS_SELECTOR, ".eo-track")
    middle = track.rect["x"] + track.rect["width"] / 2
    ActionChains(browser).move_to_element(track).click().perform()
    nearest = min(range(len(PLACES)), key=lambda n: abs(x_of(browser, n) - middle))
    assert abs(x_of(browser, nearest) - middle) < 40
    assert_shows(browser, PRESETS["at least once"], nearest)


def test_crash_is_dragged_by_finger(page):
    browser = page("the sink")
    browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
    try:
        y = browser.execute_script("return arguments[0].getBoundingClientRect().top", handle(browser)) + 20
        for kind, place in (("touchStart", AFTER_COMMIT), ("touchMove", 10), ("touchMove", 4), ("touchEnd", None)):
            points = [] if place is None else [{"x": x_of(browser, place), "y": y}]
            browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        assert_shows(browser, PRESETS["the sink"], 4)
    finally:
        browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})


def focused(browser) -> str:
    return browser.execute_script(
        "const e = document.activeElement; return e.getAttribute('role') ?? e.labels?.[0].textContent.trim()"
    )


def test_keyboard_alone_suffices(page):
    browser = page("transactions, no marker")
    press(browser, Keys.TAB)
    assert focused(browser) == "checkpoint"
    press(browser, Keys.TAB, Keys.TAB)  # what has nothing to do is passed over
    assert focused(browser) == "marker"
    press(browser, Keys.SPACE)
    assert_shows(browser, PRESETS["the sink"], AFTER_COMMIT)
    press(browser, Keys.TAB, Keys.SPACE)
    assert focused(browser) == "read_committed"
    press(browser, Keys.TAB)
    assert focused(browser) == "the job crashes"
    press(browser, Keys.TAB)
    assert focused(browser) == "slider"
    place = AFTER_COMMIT
    for key, there in (
        (Keys.ARROW_LEFT, place - 1),
        (Keys.HOME, 0),
        (Keys.ARROW_LEFT, 0),
        (Keys.ARROW_UP, 1),
        (Keys.PAGE_UP, 10),
        (Keys.END, LAST),
        (Keys.ARROW_RIGHT, LAST),
        (Keys.PAGE_DOWN, LAST - 9),
        (Keys.ARROW_DOWN, LAST - 10),
        (Keys.ARROW_RIGHT, LAST - 9),
    ):
        press(browser, key)
        assert_shows(browser, PRESETS["the sink"]._replace(read_committed=False), there)
        assert handle(browser).get_attribute("aria-valuenow") == str(there)
        assert handle(browser).get_attribute("aria-valuetext") == PLACES[there].name
    browser.execute_script("document.activeElement.blur(); document.querySelector('[type=radio]').focus()")
    press(browser, Keys.ARROW_DOWN)
    switches = PRESETS["the sink"]._replace(read_committed=False)
    assert_shows(browser, switches, LAST - 9, LOST_ACKNOWLEDGEMENT)


@pytest.mark.parametrize("number", range(len(LABELS)))
def test_switch_is_turned_by_a_click(page, number):
    browser, switches = page("no checkpoint", place="mid_rows"), PRESETS["no checkpoint"]
    place = next(n for n, each in enumerate(PLACES) if each.batch == 1 and each.station == "half")
    boxes = browser.find_elements(By.CSS_SELECTOR, "[type=checkbox]")
    boxes[number].click()
    switches = Switches(*(on != (n == number) for n, on in enumerate(switches)))
    assert_shows(browser, switches, place)
    on, idle = (timeline_data()["settings"][switches.key][each] for each in ("on", "idle"))
    assert "".join("01"[box.is_selected()] for box in boxes) == on
    assert [key for key, box in zip(LABELS, boxes, strict=True) if not box.is_enabled()] == idle


def test_every_case_stands_on_the_page_as_python_has_it(page):
    browser, data = page(), timeline_data()
    shown = browser.execute_script(
        f"""
        const read = () => {{ {READ} }};
        return arguments[0].map((case_) => {{
          for (const [key, value] of Object.entries(case_)) models.timeline.set(key, value);
          return read();
        }});
        """,
        cases := [
            {"switches": key, "fault": fault, "place": place}
            for fault, of_fault in data["cases"].items()
            for key in of_fault
            for place in range(len(PLACES))
        ],
    )
    assert len(cases) == 64 * 2 * 18
    for case, words in zip(cases, shown, strict=True):
        switches = Switches(*(each == "1" for each in case["switches"]))
        assert words == expected(switches, case["place"], case["fault"]), json.dumps(case)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("stage", ["no checkpoint", "the sink"])
def test_who_sees_badly_can_use_it(page, browser, scheme, stage):
    set_scheme(browser, scheme)
    page(stage)
    assert findings_of_axe(browser) == []
    dark = (
        browser.find_element(By.CSS_SELECTOR, ".eo-timeline").value_of_css_property("background-color")
        == "rgba(27, 27, 27, 1)"
    )
    assert dark == (scheme == "dark")


@pytest.mark.parametrize("width", [1280, 700, 390])
def test_nothing_is_cut_off_or_laid_over_something_else(page, browser, width):
    browser.set_window_size(width, 900)
    page("the sink")
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth"), "the page scrolls"
    cut = "return [...document.querySelectorAll('.eo-step, .eo-switch > *, .eo-sight')].filter((e) => "
    cut += "e.scrollWidth > e.clientWidth + 1 && e.clientWidth).map((e) => e.textContent)"
    assert browser.execute_script(cut) == []


def test_switches_that_a_lesson_does_not_need_are_left_out(page):
    browser = page("no checkpoint", only=["checkpoint", "latest"])
    assert len(browser.find_elements(By.CSS_SELECTOR, "[type=checkbox]")) == 2
    browser.find_element(By.CSS_SELECTOR, "[type=checkbox]").click()
    assert_shows(browser, PRESETS["at least once"], AFTER_COMMIT)


def test_two_on_a_page_do_not_disturb_each_other(browser, tmp_path):
    two = {"one": timeline("at least once"), "two": timeline("the sink")}
    browser.get(static_page(tmp_path, two))
    wait_for(browser, "return document.body.dataset.ready")
    browser.find_elements(By.CSS_SELECTOR, "#one [type=radio]")[1].click()
    faults = [browser.execute_script(f"return models.{name}.get('fault')") for name in two]
    assert faults == [LOST_ACKNOWLEDGEMENT, CRASH]
    assert findings_of_axe(browser) == []


def test_on_a_published_page_the_picture_becomes_live(browser, tmp_path):
    """As `make site` does it: a page from a file system, with what a notebook keeps of the widget."""
    stills = [timeline(stage, place="before_commit", only=["marker"]) for stage in ("the sink", "at least once")]
    pictures = "".join(html_of(each) for each in stills)
    (tmp_path / "timeline.js").write_text(script())
    page = "<!DOCTYPE html><html lang=en><meta charset=utf-8><title>A lesson</title><main><h1>A lesson</h1>{}</main>{}"
    (tmp_path / "page.html").write_text(page.format(pictures, "<script src=timeline.js></script>"))
    browser.get((tmp_path / "page.html").as_uri())
    place = stills[0].place
    assert_shows(browser, PRESETS["the sink"], place)
    browser.find_element(By.CSS_SELECTOR, "[type=checkbox]").click()
    assert_shows(browser, PRESETS["transactions, no marker"], place)
    assert len(browser.find_elements(By.CSS_SELECTOR, ".eo-timeline")) == 2
    assert browser.find_elements(By.TAG_NAME, "img") == []
    assert (complaints(browser), findings_of_axe(browser)) == ([], [])


def html_of(widget) -> str:
    shown = widget._repr_mimebundle_()
    return (shown[0] if isinstance(shown, tuple) else shown)["text/html"]


def test_in_a_jupyterlab(browser, jupyterlab):
    cells = ["from labs.schedules.timeline.timeline import timeline", "shown = timeline('at least once'); shown"]
    jupyterlab.open(browser, [*cells, "print('the next cell')"], "timeline.ipynb")
    jupyterlab.run(browser)
    wait_for(browser, "return document.querySelector('.eo-timeline')")
    assert_shows(browser, PRESETS["at least once"], AFTER_COMMIT)
    active = "return [...document.querySelectorAll('.jp-Cell')].findIndex((e) => e.matches('.jp-mod-active'))"
    handle(browser).click()
    cell = browser.execute_script(active)
    place = browser.execute_script("return Number(document.querySelector('[role=slider]').ariaValueNow)")
    press(browser, Keys.ARROW_LEFT, Keys.ARROW_UP, Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    assert_shows(browser, PRESETS["at least once"], place - 2)
    assert browser.execute_script(active) == cell, "the arrow keys went to another cell"
    for theme, ink in (("JupyterLab Dark", "rgba(238, 238, 238, 1)"), ("JupyterLab Light", "rgba(34, 34, 34, 1)")):
        command = "window.jupyterapp.commands.execute('apputils:change-theme', {theme: arguments[0]})"
        browser.execute_script(command, theme)
        light = json.dumps(theme.endswith("Light"))
        wait_for(browser, f"return document.body.dataset.jpThemeLight == '{light}'")
        shown = browser.find_element(By.CSS_SELECTOR, ".eo-timeline")
        assert shown.value_of_css_property("color") == ink
        assert findings_of_axe(browser, ".eo-timeline") == []
