"""The room's view in a real browser, without a kernel: live with a room's state, and playing recordings from a file."""

from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.by import By

from labs.equipment.waiting import eventually
from labs.room.published import recording_page, recording_script, view_script
from labs.room.recording import COUNTS, load_recording
from labs.room.state import KEYS, NUMBERS, ORDERS, TEXTS, empty_state
from labs.room.widget import RoomView, first_and_last, recorded_room
from tests.browser import complaints, findings_of_axe, press, set_scheme, static_page, wait_for

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
MARKER = ROOT / "docs" / "recordings" / "with-the-marker.json"
CHECKPOINT = ROOT / "docs" / "recordings" / "with-a-checkpoint-only.json"
# Lets two frames pass, since the view draws once a frame.
DRAWN = "requestAnimationFrame(() => requestAnimationFrame(() => arguments[arguments.length - 1]()))"


class ShownRoom:
    """A room that only has a state."""

    def __init__(self, state: dict[str, Any]):
        self.state = state

    def subscribe(self, _):
        return lambda: None

    def do(self, order: str, **arguments: Any) -> None:
        raise AssertionError("there is no kernel")


def state_of(path: Path, time: float) -> dict[str, Any]:
    """Return what a recording shows at a time, with every order possible."""
    state = empty_state()
    for at, changes in load_recording(path)["frames"]:
        if at <= time:
            state |= changes
    return {**state, "possible": list(ORDERS)}


def words_of(kind: str, state: dict[str, Any]) -> list[str]:
    """Return the evidence of one kind, in words."""
    return [each["words"] for each in state["evidence"] if each["kind"] == kind]


@pytest.fixture
def live(browser, tmp_path):
    """Show a state on a page without a kernel, as the room's view shows it; return the browser."""

    def live(state: dict[str, Any]):
        browser.get(static_page(tmp_path, {"room": RoomView(ShownRoom(state))}))
        wait_for(browser, "return document.body.dataset.ready")
        browser.execute_async_script(DRAWN)
        return browser

    yield live
    assert complaints(browser) == []


@pytest.fixture
def played(browser, tmp_path):
    """Show a recording; return the browser."""

    def played(path: Path):
        browser.get(static_page(tmp_path, {"room": recorded_room(path)}))
        wait_for(browser, "return document.body.dataset.ready")
        browser.execute_async_script(DRAWN)
        return browser

    yield played
    assert complaints(browser) == []


def tell(browser, **changes: Any) -> None:
    """Change traits as a kernel does, and wait until that is drawn."""
    for key, value in changes.items():
        browser.execute_script("models.room.set(`now_${arguments[0]}`, arguments[1])", key, value)
    browser.execute_async_script(DRAWN)


def texts(browser, selector: str) -> list[str]:
    return browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((each) => each.textContent)", selector
    )


def button(browser, order: str, number: int = 0):
    return browser.find_elements(By.CSS_SELECTOR, f"[data-order='{order}']")[number]


def sent(browser) -> list[dict[str, Any]]:
    """Return the orders since this was last asked."""
    return browser.execute_script("return models.room.sent.splice(0)")


def everything() -> dict[str, Any]:
    state = state_of(MARKER, 9.2)
    state["drivers"] = [{"number": 7, "state": "working", "batch": 44, "epoch": 45}]
    state["drivers"].append({"number": 8, "state": "frozen", "batch": None, "epoch": None})
    state["brokers"] = [{"number": 0, "state": "running"}, {"number": 1, "state": "killed"}]
    state["executors"] = {"wanted": 3, "running": 2}
    state["network"] = {"cut": True, "hold": "held", "held_epoch": 45}
    next(each for each in state["log"]["entries"][::-1] if each["kind"] == "row")["copy"] = True
    state["message"] = "kill-executor: no executor runs just now"
    state["waiting"] = "driver 8 is frozen"
    state["possible"] += ["kill-driver rows", "kill-driver before", "kill-driver commit"]
    return state


def test_every_key_of_the_state_is_drawn(live):
    state = everything()
    browser = live(state)
    verdict, log = state["verdict"], state["log"]
    assert texts(browser, ".eo-verdict .eo-title") == ["Running verdict"]
    assert texts(browser, ".eo-verdict-word") == ["✓valid so far"]
    assert texts(browser, ".eo-waits") == [f"{verdict['awaited']} waiting: driver 8 is frozen"]
    assert texts(browser, ".eo-counts .eo-figure") == [str(verdict[name]) for name in NUMBERS]
    assert texts(browser, "[data-order=choose-stage]") == state["stage"]["names"]
    assert texts(browser, "[aria-pressed=true][data-order=choose-stage]") == ["+ batch marker"]
    assert f"{state['traffic']['sent']} records sent" in texts(browser, ".eo-traffic")[0]
    assert texts(browser, "[aria-label=Drivers] .eo-state") == ["● working", "❄ frozen"]
    assert "batch 44 · epoch 45" in texts(browser, ".eo-lives")[0]
    lives = texts(browser, ".eo-lives")[0]
    for said in ("broker 1✕ killed", "● 2 of 3 running", "✕ cut", "held: epoch 45"):
        assert said in lives
    shown = [entry["offset"] for entry in log["entries"]]
    cells = texts(browser, ".eo-map .eo-cell")
    assert 0 < len(cells) <= len(shown)
    for kind in ("committed", "aborted"):
        expected = [each for each in log["entries"][-len(cells) :] if each["state"] == kind and each["kind"] == "row"]
        found = browser.find_elements(By.CSS_SELECTOR, f".eo-map .eo-cell[data-kind=row][data-state={kind}]")
        assert len(found) == len(expected) > 0, kind
    assert texts(browser, ".eo-map .eo-cell[data-kind=abort]") == ["A"]
    gone = next(each for each in log["entries"] if each["state"] == "aborted")
    name = f"epoch {gone['epoch']} · batch {gone['batch']}"
    assert any(name in each for each in texts(browser, ".eo-band[data-state=aborted]"))
    assert texts(browser, ".eo-stable") == [f"last stable offset {log['stable']}"]
    assert f"marker: batch {state['marker']['batch']}" in texts(browser, ".eo-marker")[0]
    counts = [f"sees {state['readers'][name]} results" for name in ("committed", "uncommitted")]
    assert texts(browser, ".eo-reader-count") == counts
    assert "aborted" not in {
        each.get_attribute("data-state")
        for each in browser.find_elements(By.CSS_SELECTOR, ".eo-reader-committed .eo-cell")
    }
    assert browser.find_elements(By.CSS_SELECTOR, ".eo-reader-uncommitted .eo-cell[data-state=aborted]")
    assert len(texts(browser, ".eo-batch")) == min(5, len(state["batches"]))
    assert texts(browser, ".eo-chart .eo-figure") == [
        str(round(each))
        for each in (state["traffic"]["per_second"], state["counted"]["per_second"], state["counted"]["behind"])
    ]
    assert texts(browser, ".eo-chronicle .eo-what") == [each["words"] for each in state["chronicle"][::-1]]
    assert texts(browser, ".eo-mark") == [str(each["number"]) for each in state["chronicle"]]
    assert texts(browser, ".eo-message span") == [state["message"]]
    tell(browser, time=50.0, possible=[], message="")
    assert browser.find_elements(By.CSS_SELECTOR, ".eo-order[aria-disabled=false]") == []
    assert not browser.find_element(By.CSS_SELECTOR, ".eo-message").is_displayed()
    found = "UNDERCOUNT 3: A count is smaller than expected."
    tell(browser, report={**verdict, "verdict": "invalid", "lost": 7, "why": found})
    assert texts(browser, ".eo-verdict .eo-title") == ["Final verdict"]
    assert (texts(browser, ".eo-verdict-word"), texts(browser, ".eo-count-lost .eo-figure")) == (["✕invalid"], ["7"])
    assert texts(browser, ".eo-why") == [f"{TEXTS['judged']} {found}"]
    tell(browser, verdict={**verdict, "awaited": 5})
    refused = "the sink refused two drivers; 2 of 7 expected results were read."
    tell(browser, report={**verdict, "verdict": "unknown", "why": refused})
    assert refused in texts(browser, ".eo-why")[0]
    assert texts(browser, ".eo-count-awaited .eo-figure") == ["5"]


def test_an_act_of_the_same_stage_can_begin_when_this_one_is_judged_and_none_when_the_room_is_closed(live):
    state = everything()
    browser = live(state)
    names = state["stage"]["names"]
    here = names.index(state["stage"]["name"])
    assert button(browser, "choose-stage", here).get_attribute("aria-disabled") == "true"
    report = {**dict.fromkeys(COUNTS, 0), "verdict": "valid", "why": ""}
    tell(browser, report=report, traffic={**state["traffic"], "sent": 0})
    assert button(browser, "choose-stage", here).get_attribute("aria-disabled") == "false"
    button(browser, "choose-stage", here).click()
    assert sent(browser) == [{"do": "choose-stage", "stage": names[here]}]
    browser.execute_script("models.room.set('live', false)")
    browser.execute_async_script(DRAWN)
    assert {button(browser, "choose-stage", n).get_attribute("aria-disabled") for n in range(len(names))} == {"true"}


def test_copies_are_marked_and_the_verdict_says_it_in_a_word_and_a_sign(live):
    browser = live(state_of(CHECKPOINT, 10.5))
    assert texts(browser, ".eo-verdict-word") == ["✕invalid"]
    pinned = words_of("duplicated", state_of(CHECKPOINT, 10.5))
    assert texts(browser, ".eo-piece") == pinned == [each for each in pinned if "batch 16 and batch 16" in each]
    copies = texts(browser, ".eo-map .eo-cell[data-copy=true] .eo-cell-client")
    assert copies
    assert all("2×" in each for each in copies)
    assert texts(browser, ".eo-band") == [each for each in texts(browser, ".eo-band") if "epoch" not in each]


ONES: list[tuple[str, dict[str, Any]]] = [
    ("stop-traffic", {}),
    ("freeze-driver", {"driver": 7}),
    ("kill-driver", {"driver": 7}),
    ("start-driver", {}),
    ("keep-spare", {"on": False}),
    ("kill-broker", {"broker": 0}),
    ("freeze-broker", {"broker": 0}),
    ("kill-executor", {}),
    ("heal-network", {}),
    ("deliver-commit", {}),
    ("delete-checkpoint", {}),
    ("finish", {}),
    ("save", {"folder": ""}),
]


def test_each_button_sends_its_order_and_none_when_it_is_impossible(live):
    browser = live(everything())
    for order, arguments in ONES:
        button(browser, order).click()
        assert sent(browser) == [{"do": order, **arguments}]
    button(browser, "wake-driver").click()
    button(browser, "start-broker").click()
    assert sent(browser) == [{"do": "wake-driver", "driver": 8}, {"do": "start-broker", "broker": 1}]
    moments = {"rows": "Kill in mid-rows", "before": "Kill before commit", "commit": "Kill after commit"}
    for at, moment in moments.items():
        aimed = browser.find_element(By.CSS_SELECTOR, f"[data-at={at}]")
        assert aimed.text == moment
        aimed.click()
        assert sent(browser) == [{"do": "kill-driver", "at": at}]
    tell(browser, possible=[])
    for order, _ in [*ONES, ("choose-stage", {})]:
        assert button(browser, order).get_attribute("aria-disabled") == "true"
        button(browser, order).click()
    assert sent(browser) == []
    assert "not possible now" in button(browser, "finish").get_attribute("title")


def test_a_new_act_can_be_cancelled_while_there_is_something_to_lose(live):
    browser = live(everything())
    act, cancel = ".eo-act", browser.find_element(By.CSS_SELECTOR, ".eo-cancel")
    assert not cancel.is_displayed()
    button(browser, "choose-stage", 1).click()
    eventually(lambda: texts(browser, act) == ["new act in 2 s"])
    cancel.click()
    eventually(lambda: texts(browser, act) == ["act 1"])
    button(browser, "choose-stage", 2).click()
    assert eventually(lambda: sent(browser), 20) == [{"do": "choose-stage", "stage": "+ idempotent producer"}]
    eventually(lambda: texts(browser, act) == ["act 1"])
    tell(browser, traffic={"on": False, "rate": 40, "sent": 0, "per_second": 0.0})
    button(browser, "choose-stage", 1).click()
    assert sent(browser) == [{"do": "choose-stage", "stage": "checkpoint"}]


def test_a_button_that_moves_while_it_is_held_down_is_pressed(live):
    browser = live(everything())
    ActionChains(browser).click_and_hold(button(browser, "freeze-driver")).perform()
    browser.execute_script("document.querySelector('.eo-room').style.marginTop = '10em'")
    ActionChains(browser).release().perform()
    assert sent(browser) == [{"do": "freeze-driver", "driver": 7}]


def test_a_double_click_strikes_once_and_no_row_moves_when_a_driver_is_killed(live):
    browser = live(everything())
    ActionChains(browser).double_click(button(browser, "kill-driver")).perform()
    assert sent(browser) == [{"do": "kill-driver", "driver": 7}]
    place = button(browser, "kill-driver").location
    killed = {**everything()["drivers"][0], "state": "killed"}
    tell(browser, drivers=[killed, {"number": 9, "state": "starting", "batch": None, "epoch": None}])
    assert button(browser, "kill-driver").location == place
    assert texts(browser, ".eo-slots .eo-name") == ["driver 9"]
    assert texts(browser, ".eo-fold summary") == ["drivers that have ended: 1"]
    ActionChains(browser).pause(1).click(button(browser, "kill-driver")).perform()
    assert sent(browser) == [{"do": "kill-driver", "driver": 9}]


def test_a_piece_of_evidence_leads_to_both_its_records_and_back(live):
    state = state_of(CHECKPOINT, 10.5)
    browser = live(state)
    later = state["log"]["end"] + 400  # the copies are long out of sight
    tell(browser, log={"end": later, "stable": later, "entries": []})
    assert texts(browser, ".eo-cell[data-found=true]") == []
    button_of_copies = browser.find_element(By.CSS_SELECTOR, ".eo-count-duplicated")
    button_of_copies.click()
    first = next(each["entries"] for each in state["evidence"] if each["kind"] == "duplicated")
    eventually(lambda: len(texts(browser, ".eo-map .eo-cell[data-found=true]")) == 2)
    assert len(texts(browser, ".eo-map .eo-cell[data-copy=true]")) >= 1
    assert [entry["batch"] for entry in first] == [16, 16]
    newest = browser.find_element(By.CSS_SELECTOR, ".eo-newest")
    assert newest.text.endswith(" newer")
    newest.click()
    eventually(lambda: newest.text == "newest")
    browser.find_element(By.CSS_SELECTOR, ".eo-earlier").click()
    eventually(lambda: newest.text.endswith(" newer"))


def test_each_counter_leads_to_its_records(live):
    state = state_of(CHECKPOINT, 10.5)
    entry = state["log"]["entries"][-1]
    words = f"{entry['ip']}, {entry['window']}: batch {entry['batch']}"
    state["evidence"].append({"kind": "delivered", "words": words, "entries": [entry]})
    browser = live(state)
    for kind, shown in (
        ("delivered", [*words_of("delivered", state_of(CHECKPOINT, 10.5)), words]),
        ("lost", []),
        ("duplicated", words_of("duplicated", state)),
    ):
        browser.find_element(By.CSS_SELECTOR, f".eo-count-{kind}").click()
        browser.execute_async_script(DRAWN)
        assert texts(browser, ".eo-evidence .eo-title")[0].startswith(f"{kind}: ")
        assert texts(browser, ".eo-piece") == shown
        assert bool(texts(browser, ".eo-map .eo-cell[data-found=true]")) == bool(shown)
        assert texts(browser, ".eo-evidence .eo-none") == ["" if shown else "none"]
    tell(browser, evidence=[])
    assert texts(browser, ".eo-evidence .eo-none") == ["not in this recording"]


@pytest.mark.parametrize("width", [1920, 1280])
def test_what_a_cell_of_the_log_says_fits_into_it(live, browser, width):
    browser.set_window_size(width, 900)
    live(everything())
    wide = "return [...document.querySelectorAll('.eo-map .eo-cell')].filter((e) => e.scrollWidth > e.clientWidth)"
    assert browser.execute_script(f"{wide}.map((e) => e.textContent)") == []


def test_a_copy_and_its_original_flash_together_unless_motion_is_unwanted(live):
    browser = live(state_of(CHECKPOINT, 7.8))
    tell(browser, log=state_of(CHECKPOINT, 8.2)["log"])
    browser.execute_async_script(DRAWN)
    flashing = browser.find_elements(By.CSS_SELECTOR, ".eo-map .eo-cell.eo-flash")
    assert {each.get_attribute("data-copy") for each in flashing} == {"true", "false"}
    assert flashing[0].value_of_css_property("animation-name") == "eo-flash"
    features = [{"name": "prefers-reduced-motion", "value": "reduce"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "screen", "features": features})
    assert flashing[0].value_of_css_property("animation-name") == "none"


def test_the_three_steps_say_where_one_is(live):
    browser = live({**empty_state(), "possible": list(ORDERS), "waiting": "driver 1 is starting, about 20 s"})
    now = ".eo-steps [aria-current=step]"
    assert texts(browser, now) == ["1Start traffic"]
    assert texts(browser, ".eo-verdict-word") == ["?no verdict yet"]
    assert texts(browser, ".eo-waits") == ["Waiting: driver 1 is starting, about 20 s"]
    start = button(browser, "start-traffic")
    assert start.value_of_css_property("background-color") == "rgba(10, 92, 148, 1)"
    state = everything()
    tell(browser, traffic=state["traffic"], chronicle=[])
    assert texts(browser, now) == ["2Kill the driver"]
    tell(browser, chronicle=state["chronicle"])
    assert texts(browser, now) == ["3Watch the verdict"]


def test_marks_that_would_overlap_are_one_mark(live):
    state = everything()
    one = state["chronicle"][0]
    strikes = [{**one, "number": number, "time": time} for number, time in enumerate((7, 30, 30.5, 31, 50), 1)]
    browser = live({**state, "chronicle": strikes})
    assert texts(browser, ".eo-mark") == ["1", "2–4", "5"]
    over = "const marks = [...document.querySelectorAll('.eo-mark')].map((each) => each.getBoundingClientRect());"
    over += "return marks.filter((each, n) => n && each.left < marks[n - 1].right).length"
    for width in (1280, 800):
        browser.set_window_size(width, 900)
        tell(browser, chronicle=[{**one, "number": n, "time": 2.0 * n} for n in range(1, 25)])
        assert (browser.execute_script(over), len(texts(browser, ".eo-mark")) > 3) == (0, True), width


@pytest.mark.parametrize(("width", "least", "most"), [(1920, 19, 21), (1280, 14, 16)])
def test_the_text_grows_with_the_page_and_by_hand_and_is_never_tiny(live, browser, width, least, most):
    browser.set_window_size(width, 900)
    live(everything())
    size = "return parseFloat(getComputedStyle(document.querySelector('.eo-sheet')).fontSize)"
    fits = browser.execute_script(size)
    assert least <= fits <= most
    smaller, larger = browser.find_elements(By.CSS_SELECTOR, ".eo-sizes button")
    larger.click()
    assert browser.execute_script(size) > fits
    for _ in range(9):
        smaller.click()
    tiny = "return [...document.querySelectorAll('.eo-room *')].filter((e) => e.clientWidth && [...e.childNodes].some("
    tiny += "(n) => n.nodeType == 3) && parseFloat(getComputedStyle(e).fontSize) < 12).map((e) => e.className)"
    assert browser.execute_script(tiny) == []


ESSENTIAL = (".eo-verdict-word", ".eo-counts", ".eo-waits", ".eo-evidence", ".eo-chronicle")


@pytest.mark.parametrize("shown", ["live", "played"])
@pytest.mark.parametrize(("width", "height"), [(1920, 1080), (1280, 800)])
def test_verdict_counters_and_last_strikes_are_on_the_first_screen(request, browser, shown, width, height):
    show = request.getfixturevalue(shown)
    browser.set_window_size(width, height)
    if shown == "live":
        show(everything())
    else:
        seek(show(MARKER), 42.3)
    foot = "return document.querySelector(arguments[0]).getBoundingClientRect().bottom / innerHeight"
    feet = {each: browser.execute_script(foot, each) for each in (*ESSENTIAL, ".eo-lives .eo-slots")}
    assert {each: foot for each, foot in feet.items() if foot > 1} == {}


def test_each_of_two_drivers_can_be_frozen(live):
    drivers = [{"number": number, "state": "working", "batch": 44, "epoch": 45} for number in (7, 8)]
    browser = live({**everything(), "drivers": drivers})
    for number in range(2):
        button(browser, "freeze-driver", number).click()
    assert [each["driver"] for each in sent(browser)] == [7, 8]


def test_a_spare_that_is_wanted_and_not_warm_yet_can_be_given_up(live):
    starting = {"number": 8, "state": "starting", "batch": None, "epoch": None}
    browser = live({**everything(), "drivers": [everything()["drivers"][0], starting], "spare": True})
    assert button(browser, "keep-spare").get_attribute("aria-pressed") == "true"
    button(browser, "keep-spare").send_keys(Keys.ENTER)
    assert sent(browser) == [{"do": "keep-spare", "on": False}]
    tell(browser, spare=False)
    button(browser, "keep-spare").send_keys(Keys.ENTER)
    assert sent(browser) == [{"do": "keep-spare", "on": True}]


def test_the_rate_is_sent_when_it_is_chosen_and_not_changed_under_the_hand(live):
    browser = live(everything())
    rate = browser.find_element(By.CSS_SELECTOR, ".eo-rate")
    rate.send_keys(Keys.CONTROL, "a")
    rate.send_keys("25")
    tell(browser, traffic={"on": True, "rate": 40, "sent": 9, "per_second": 1.0})
    assert rate.get_attribute("value") == "25"
    rate.send_keys(Keys.ENTER)
    assert sent(browser) == [{"do": "set-rate", "rate": 25}]
    rate.send_keys(Keys.CONTROL, "a")
    rate.send_keys("-5", Keys.ENTER)
    assert sent(browser) == [{"do": "set-rate", "rate": -5}], "the room says why it refuses that"
    tell(browser, traffic={"on": True, "rate": 40, "sent": 99, "per_second": 1.0})
    assert rate.get_attribute("value") == "-5", "the room has not answered yet"
    tell(browser, message="a rate of -5 is not possible; expected 0 to 5,000 records a second")
    assert rate.get_attribute("value") == "40"
    assert texts(browser, ".eo-message span") == ["a rate of -5 is not possible; expected 0 to 5,000 records a second"]
    rate.send_keys(Keys.CONTROL, "a")
    rate.send_keys("30", Keys.ENTER)
    tell(browser, traffic={"on": True, "rate": 30, "sent": 100, "per_second": 1.0})
    tell(browser, traffic={"on": True, "rate": 50, "sent": 101, "per_second": 1.0})
    assert rate.get_attribute("value") == "50", "the field follows the room again"


def test_keyboard_alone_suffices_and_keeps_its_place(live):
    browser = live(everything())
    reached = []
    for _ in range(80):
        press(browser, Keys.TAB)
        order = browser.execute_script(
            "return document.activeElement.dataset.order ?? document.activeElement.className"
        )
        reached.append(order)
        if order == "freeze-driver":
            break
    assert "eo-rate" in reached
    assert "choose-stage" in reached
    press(browser, Keys.SPACE)
    assert sent(browser) == [{"do": "freeze-driver", "driver": 7}]
    frozen = {**everything()["drivers"][0], "state": "frozen"}
    tell(browser, drivers=[frozen], possible=["wake-driver"])
    assert browser.execute_script("return document.activeElement.dataset.order") == "wake-driver", "the focus is gone"
    press(browser, Keys.ENTER)
    assert sent(browser) == [{"do": "wake-driver", "driver": 7}]


def seek(browser, time: float) -> None:
    browser.execute_script(
        "const slider = document.querySelector('.eo-seek'); slider.value = arguments[0];"
        "slider.dispatchEvent(new Event('input'))",
        time,
    )
    browser.execute_async_script(DRAWN)


def clock(browser) -> float:
    return float(texts(browser, ".eo-clock")[0].split()[0])


def shows(browser, state: dict[str, Any]) -> bool:
    """Tell whether verdict, log and chronicle stand there as in the state."""
    figures = [str(state["verdict"][name]) for name in NUMBERS]
    return (
        texts(browser, ".eo-counts .eo-figure") == figures
        and texts(browser, ".eo-stable") == [f"last stable offset {state['log']['stable']}"]
        and len(texts(browser, ".eo-chronicle li")) == len(state["chronicle"])
    )


def test_a_recording_is_sought_forwards_and_backwards(played):
    browser = played(MARKER)
    for time in (30.0, 8.0, 55.9, 0.0, 16.5):
        seek(browser, time)
        assert shows(browser, state_of(MARKER, time)), time
    assert clock(browser) == 16.5
    assert browser.find_elements(By.CSS_SELECTOR, ".eo-orders [data-order]")
    assert not any(each.is_displayed() for each in browser.find_elements(By.CSS_SELECTOR, ".eo-orders"))


def test_a_recording_is_stepped_from_strike_to_strike(played):
    browser = played(MARKER)
    strikes = first_and_last(load_recording(MARKER))[1]["chronicle"]
    step = {each.text: each for each in browser.find_elements(By.CSS_SELECTOR, ".eo-player button")}
    for number in range(1, len(strikes) + 1):
        step["Next strike"].click()
        browser.execute_async_script(DRAWN)
        assert texts(browser, ".eo-chronicle .eo-number")[0] == str(number)
    assert step["Next strike"].get_attribute("aria-disabled") == "true"
    step["Previous strike"].click()
    browser.execute_async_script(DRAWN)
    assert texts(browser, ".eo-chronicle .eo-number")[0] == str(len(strikes) - 1)


def test_a_recording_plays_at_its_speed_pauses_and_plays_to_its_end(played):
    browser = played(MARKER)
    play = browser.find_element(By.CSS_SELECTOR, ".eo-play")
    assert play.text == "Play"
    run = """
    const [speed, done] = arguments, at = () => parseFloat(document.querySelector(".eo-clock").textContent);
    const buttons = [...document.querySelectorAll(".eo-player button")];
    const press = (text) => buttons.find((each) => each.textContent === text).click();
    press(speed); press("Play");
    setTimeout(() => { const [from, began] = [at(), performance.now()];
      setTimeout(() => { const played = at() - from, passed = (performance.now() - began) / 1000;
        press("Pause"); done([played, passed]); }, 1000); }, 200);
    """
    for speed, factor in (("1×", 1), ("4×", 4), ("0.5×", 0.5)):
        played_seconds, passed = browser.execute_async_script(run, speed)
        assert played_seconds == pytest.approx(passed * factor, rel=0.35, abs=0.25), speed
        assert browser.find_element(By.CSS_SELECTOR, ".eo-speeds [aria-pressed=true]").text == speed
    stopped = clock(browser)
    browser.execute_async_script(DRAWN)
    assert clock(browser) == stopped
    seconds = load_recording(MARKER)["seconds"]
    seek(browser, seconds - 1)
    play.send_keys(Keys.SPACE)
    eventually(lambda: clock(browser) == seconds, 20)
    eventually(lambda: shows(browser, first_and_last(load_recording(MARKER))[1]), 20)
    assert texts(browser, ".eo-verdict .eo-title") == ["Final verdict"]
    wait_for(browser, "return document.querySelector('.eo-play').textContent === 'Play'")
    play.click()
    wait_for(browser, "return parseFloat(document.querySelector('.eo-clock').textContent) < 30")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_who_sees_badly_can_use_it(live, browser, scheme):
    set_scheme(browser, scheme)
    live(everything())
    assert findings_of_axe(browser) == []
    background = browser.find_element(By.CSS_SELECTOR, ".eo-room").value_of_css_property("background-color")
    assert background == ("rgba(22, 25, 28, 1)" if scheme == "dark" else "rgba(255, 255, 255, 1)")


@pytest.mark.parametrize("width", [1920, 1600, 1280, 800, 500])
def test_the_page_does_not_scroll_sideways_and_nothing_is_cut_off(live, browser, width):
    browser.set_window_size(width, 900)
    live(everything())
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    cut = "return [...document.querySelectorAll('.eo-room button, .eo-name, .eo-state, .eo-figure, .eo-batch')].filter("
    cut += "(e) => e.clientWidth && e.scrollWidth > e.clientWidth + 1).map((e) => e.textContent)"
    assert browser.execute_script(cut) == []


def test_an_hour_of_ticks_leaves_no_nodes_behind(live):
    browser = live(everything())
    feed = """
    const [states, done] = arguments, count = () => document.querySelectorAll("*").length;
    let tick = 0, most = 0;
    const step = () => {
      const n = tick % states.length, base = Math.floor(tick / states.length) * 1000;
      for (const [key, value] of Object.entries(states[n])) {
        let now = value;
        if (key === "time") now = tick / 10;
        if (key === "log") now = { end: value.end + base, stable: value.stable + base,
          entries: value.entries.map((entry) => ({ ...entry, offset: entry.offset + base })) };
        if (key === "batches" || key === "drivers")
          now = value.map((each) => ({ ...each, number: each.number + base }));
        if (key === "chronicle") now = Array.from({ length: 40 }, (_, k) => ({ ...value[0], number: tick + k + 1 }));
        models.room.set(`now_${key}`, now);
      }
      tick += 1;
      if (tick > 200) most = Math.max(most, count());
      if (tick < 2000) tick % 40 ? queueMicrotask(step) : requestAnimationFrame(step);
      else requestAnimationFrame(() => requestAnimationFrame(() => done([most, count()])));
    };
    step();
    """
    states = [state_of(MARKER, time) for time in (8.0, 9.0, 12.0, 18.0, 30.0, 50.0)]
    most, left = browser.execute_async_script(feed, [{k: v for k, v in each.items() if k in KEYS} for each in states])
    assert left <= most < 1500
    assert len(texts(browser, ".eo-chronicle li")) == 40


def test_on_a_published_page_two_recordings_and_a_room_become_live(browser, tmp_path):
    """As `make site` does it: a page from a file system, with what a notebook keeps of the view."""
    stills = [recorded_room(MARKER).as_html(), recorded_room(CHECKPOINT).as_html()]
    stills.append(RoomView(ShownRoom(state_of(MARKER, 9.2))).as_html())
    sources = [recording_script(path.stem, ROOT) for path in (MARKER, CHECKPOINT)]
    for name, text in zip(("one.js", "two.js", "room.js"), [*sources, view_script()], strict=True):
        (tmp_path / name).write_text(text)
    scripts = "".join(f"<script src={name}></script>" for name in ("one.js", "two.js", "room.js"))
    page = "<!DOCTYPE html><html lang=en><meta charset=utf-8><title>A lesson</title><main><h1>A lesson</h1>{}</main>{}"
    (tmp_path / "page.html").write_text(page.format("".join(stills), scripts))
    browser.get((tmp_path / "page.html").as_uri())
    browser.execute_async_script(DRAWN)
    assert len(browser.find_elements(By.CSS_SELECTOR, ".eo-room")) == 3
    assert len(browser.find_elements(By.CSS_SELECTOR, ".eo-player")) == 2
    assert browser.find_elements(By.TAG_NAME, "img") == []
    for each, path in zip(browser.find_elements(By.CSS_SELECTOR, ".eo-seek"), (MARKER, CHECKPOINT), strict=True):
        end = "arguments[0].value = arguments[0].max; arguments[0].dispatchEvent(new Event('input'))"
        browser.execute_script(end, each)
        assert float(each.get_attribute("max") or 0) == load_recording(path)["seconds"]
    eventually(lambda: texts(browser, ".eo-verdict-word") == ["✓valid", "✕invalid", "✓valid so far"])
    assert (complaints(browser), findings_of_axe(browser)) == ([], [])


def test_a_recording_plays_from_one_file(browser, tmp_path):
    (tmp_path / "room.html").write_text(recording_page(load_recording(CHECKPOINT)))
    browser.get((tmp_path / "room.html").as_uri())
    wait_for(browser, "return document.querySelector('.eo-seek')")
    for time in (40.0, 8.0):
        seek(browser, time)
        assert shows(browser, state_of(CHECKPOINT, time)), time
    assert (len(texts(browser, "h1")), len(texts(browser, "[role=main]"))) == (1, 1)
    assert (complaints(browser), findings_of_axe(browser)) == ([], [])


def test_a_state_of_an_older_notebook_can_be_shown(browser, tmp_path):
    state = {key: value for key, value in empty_state().items() if key not in ("evidence", "waiting")}
    still = RoomView(ShownRoom(empty_state())).as_html()
    still = re.sub(r'data-room="[^"]*"', f'data-room="{escape(json.dumps({"state": state}))}"', still)
    page = "<!DOCTYPE html><html lang=en><meta charset=utf-8><title>A lesson</title><main>{}</main><script>{}</script>"
    (tmp_path / "page.html").write_text(page.format(still, view_script()))
    browser.get((tmp_path / "page.html").as_uri())
    browser.execute_async_script(DRAWN)
    assert texts(browser, ".eo-verdict-word") == ["?no verdict yet"]
    assert complaints(browser) == []


def test_in_a_jupyterlab(browser, jupyterlab):
    cells = [
        "import threading\nfrom labs.room.widget import RoomView\nfrom tests.room.test_widget import StubRoom, told",
        "room = StubRoom(**{**told(), 'possible': ['kill-broker']})\nRoomView(room)",
        "for n in range(30):\n    threading.Thread(target=room.tell, kwargs={'message': f'tick {n}'}).start()",
        "room.done",
    ]
    jupyterlab.open(browser, cells, "room.ipynb")
    jupyterlab.run(browser)
    wait_for(browser, "return document.querySelector('.eo-message span')?.textContent.startsWith('tick')")
    assert texts(browser, ".eo-verdict-word") == ["✕invalid"]
    button(browser, "kill-broker").send_keys(Keys.ENTER)
    command = "window.jupyterapp.commands.execute(arguments[0], arguments[1])"

    def heard() -> bool:
        jupyterlab.run(browser, "notebook:run-all-below")
        return "('kill-broker', {'broker': 0})" in "".join(texts(browser, ".jp-OutputArea-output pre"))

    browser.execute_script(
        "const { content } = window.jupyterapp.shell.currentWidget; content.activeCellIndex = arguments[0]", 3
    )
    eventually(heard, 30)
    for theme, ink in (("JupyterLab Dark", "rgba(236, 238, 240, 1)"), ("JupyterLab Light", "rgba(28, 30, 33, 1)")):
        browser.execute_script(command, "apputils:change-theme", {"theme": theme})
        wait_for(browser, f"return document.body.dataset.jpThemeLight == '{json.dumps(theme.endswith('Light'))}'")
        assert browser.find_element(By.CSS_SELECTOR, ".eo-room").value_of_css_property("color") == ink
        assert findings_of_axe(browser, ".eo-room") == []
