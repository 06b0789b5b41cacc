"""The room in a real browser, on a real Kafka and a real Spark: struck by its buttons, as page and in JupyterLab."""

from __future__ import annotations

from typing import Any

import pytest

from labs.equipment.waiting import eventually
from labs.room.page import RoomPage, cell_of
from labs.runs.staircase import EXACTLY_ONCE, NO_CHECKPOINT
from tests.browser import complaints, wait_for

OPTIONS = {"stage": EXACTLY_ONCE.name, "rate": 40}
pytestmark = [pytest.mark.long, pytest.mark.timeout(580)]


class Hand:
    """Presses the buttons of the room that the browser shows, and reads what it says."""

    def __init__(self, browser):
        self.browser = browser
        wait_for(browser, "return document.querySelector('.eo-room')", 150)

    def press(self, order: str, label: str = "", patience: float = 120) -> None:
        """Press the button of an order as soon as it can be used; `label`, where several have the order."""
        usable = (
            "return [...document.querySelectorAll(`[data-order='${arguments[0]}']:not([aria-disabled=true])`)]"
            ".find((each) => each.textContent.includes(arguments[1]) && each.checkVisibility())"
        )
        eventually(lambda: self.browser.execute_script(usable, order, label), patience).click()

    def number(self, name: str) -> int:
        script = "return Number(document.querySelector(`.eo-count-${arguments[0]} .eo-figure`).textContent)"
        return self.browser.execute_script(script, name)

    def text(self, selector: str) -> str:
        script = "return document.querySelector(arguments[0])?.textContent ?? ''"
        return self.browser.execute_script(script, selector)

    def until(self, condition: Any, patience: float = 120) -> None:
        try:
            eventually(condition, patience)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; the room shows {self.text('.eo-room')}") from None

    def until_delivered(self, more: int) -> None:
        least = self.number("delivered") + more
        self.until(lambda: self.number("delivered") >= least)


def strike_by_hand(hand: Hand) -> None:
    """Kill the driver and deliver a commit late: valid. Then the same kill where nothing is remembered: invalid."""
    hand.press("start-traffic")
    hand.until_delivered(6)
    hand.press("kill-driver")
    hand.until(lambda: "was killed" in hand.text(".eo-room"))
    hand.until_delivered(6)
    hand.press("hold-commit")
    hand.press("deliver-commit")
    hand.until(lambda: "arrives late" in hand.text(".eo-room"))
    hand.until_delivered(1)
    assert hand.text(".eo-verdict-word") == "✓valid so far"
    hand.press("choose-stage", NO_CHECKPOINT.name)
    hand.until(lambda: "act 2" in hand.text(".eo-act"))
    hand.until_delivered(6)
    hand.press("kill-driver")
    hand.until(lambda: hand.text(".eo-verdict-word") == "✕invalid")
    hand.press("finish")
    hand.until(lambda: hand.text(".eo-verdict .eo-title") == "Final verdict")
    assert hand.text(".eo-verdict-word") == "✕invalid"
    assert hand.number("lost") == 0 < hand.number("duplicated")


@pytest.mark.soak
def test_struck_on_its_page(browser):
    with RoomPage(cell_of(OPTIONS)) as page:
        page.await_ready()
        browser.get(page.address)
        strike_by_hand(Hand(browser))
        assert complaints(browser) == []
        browser.get("about:blank")


@pytest.mark.soak
def test_struck_in_a_jupyterlab(browser, jupyterlab):
    cells = [f"from labs.room.widget import room\nhere = room(**{OPTIONS!r})\nhere", "here.close()"]
    jupyterlab.open(browser, cells, "by hand.ipynb")
    jupyterlab.run(browser, "notebook:run-cell")
    strike_by_hand(Hand(browser))
    browser.execute_script("window.jupyterapp.shell.currentWidget.content.activeCellIndex = 1")
    jupyterlab.run(browser, "notebook:run-cell")
