"""A real browser for the tests of widgets: Debian's chromium with its driver, or any Chrome with its own, headless.

    def test_something(browser, tmp_path):
        browser.get(static_page(tmp_path, {"timeline": timeline()}))    # without a kernel, below file://
        ...
        assert findings_of_axe(browser) == []

    def test_in_jupyterlab(browser, jupyterlab):
        jupyterlab.open(browser, {"one.ipynb": ["from labs.lesson import predict", ...]}, "one.ipynb")

Where no browser is found, the tests that want one are skipped, and say so. Nothing is fetched: neither does Selenium
look for a driver, nor reaches the browser anything but this machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import nbformat
import pytest
from axe_core_python.selenium import Axe
from selenium.common.exceptions import WebDriverException
from selenium.webdriver import ActionChains, Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

from labs.equipment.child_process import ChildProcess
from labs.equipment.ports import free_ports
from labs.equipment.waiting import eventually

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
WIDTH, HEIGHT = 1280, 900
OPTIONS = (
    "--headless=new",
    f"--window-size={WIDTH},{HEIGHT}",
    "--force-device-scale-factor=1",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
)
GRAVE = ("serious", "critical")  # of axe's findings
# A page may load nothing at all; its widgets are modules made of their own text, as anywidget makes them.
POLICY = "default-src 'none'; script-src 'unsafe-inline' blob:; style-src 'unsafe-inline'; img-src data: blob:"
PAGE = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>Widgets without a kernel</title>
<meta http-equiv="Content-Security-Policy" content="{policy}"><style>body {{ margin: 16px; {style} }}</style></head>
<body><main><h1>Widgets without a kernel</h1>{places}</main>
<script type="module">
for (const [name, {{ _esm, _css, ...traits }}] of Object.entries({widgets})) {{
  const style = document.createElement("style");
  style.textContent = _css;
  document.head.append(style);
  const listeners = new Set();
  const model = {{
    get: (key) => traits[key],
    set: (key, value) => {{
      traits[key] = value;
      listeners.forEach(([event, call]) => event === `change:${{key}}` && call());
    }},
    on: (event, call) => listeners.add([event, call]),
    off: (event, call) => listeners.forEach((each) => each[1] === call && listeners.delete(each)),
    save_changes: () => {{}},
    sent: [],
    send: (message) => model.sent.push(message),
  }};
  (window.models ??= {{}})[name] = model;
  const made = await import(URL.createObjectURL(new Blob([_esm], {{ type: "text/javascript" }})));
  await made.default.render({{ model, el: document.getElementById(name) }});
}}
document.body.dataset.ready = "yes";
</script></body></html>
"""


def missing_browser() -> str:
    """Say what is missing for tests in a browser, or nothing."""
    if not _browser():
        return (
            f"no browser: none of {', '.join(BROWSERS)} is on PATH (Debian: apt-get install chromium chromium-driver)"
        )
    if not _driver():
        return "a browser without its driver: no chromedriver on PATH (Debian: apt-get install chromium-driver)"
    return ""


def _browser() -> str | None:
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def _driver() -> str | None:
    # A forge's machines have the driver of their Chrome where this variable says.
    return shutil.which("chromedriver") or shutil.which("chromedriver", path=os.environ.get("CHROMEWEBDRIVER", ""))


@contextlib.contextmanager
def started_browser() -> Iterator[Chrome]:
    """Start the browser, and end it."""
    options = ChromeOptions()
    options.binary_location = str(_browser())
    for option in (*OPTIONS, *(["--no-sandbox"] if os.geteuid() == 0 else [])):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=Service(executable_path=_driver()))
    try:
        driver.set_script_timeout(60)
        yield driver
    finally:
        driver.quit()


@pytest.fixture(scope="session")
def _one_browser() -> Iterator[Chrome]:
    if reason := missing_browser():
        pytest.skip(reason)
    with started_browser() as driver:
        yield driver


@pytest.fixture
def browser(_one_browser: Chrome) -> Iterator[Chrome]:
    """A Selenium driver with an empty page, 1280 wide, in the light; one browser for all tests of a process."""
    _one_browser.set_window_size(WIDTH, HEIGHT)
    set_scheme(_one_browser, "light")
    _one_browser.get("about:blank")
    _one_browser.get_log("browser")  # what an earlier page complained about
    kept = {"origin": "file://", "storageTypes": "local_storage"}  # by an earlier page
    _one_browser.execute_cdp_cmd("Storage.clearDataForOrigin", kept)
    yield _one_browser
    _one_browser.get("about:blank")


def set_scheme(driver: Chrome, scheme: str) -> None:
    """Let pages know that their reader likes it `light` or `dark`."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "screen", "features": features})


def static_page(directory: Path, widgets: Mapping[str, Any], *, dark: bool = False) -> str:
    """Write a page that shows anywidgets without a kernel, each in an element of its name; return its address.

    A widget's traits are `models.NAME.get(trait)` in the page, its messages `models.NAME.sent`. The page may load
    nothing from anywhere.
    """
    state = {name: _traits(widget) for name, widget in widgets.items()}
    places = "".join(f'<div id="{escape(name)}"></div>' for name in state)
    style = "background: #111; color: #EEE" if dark else ""
    as_script = json.dumps(state).replace("</", "<\\/")
    page = directory / "widgets.html"
    page.write_text(PAGE.format(policy=escape(POLICY), style=style, places=places, widgets=as_script))
    return page.as_uri()


def _traits(widget: Any) -> dict[str, Any]:
    """Return what a widget's model holds, with the texts of its module and its style."""
    state = widget.get_state()
    return {key: value for key, value in state.items() if key in ("_esm", "_css") or not key.startswith("_")}


def wait_for(driver: Chrome, script: str, timeout: float = 60) -> Any:
    """Return what a script returns as soon as that is true. Raises TimeoutError, with the page's complaints."""
    try:
        return eventually(lambda: driver.execute_script(script), timeout)
    except TimeoutError as error:
        raise TimeoutError(f"never true: {script}; {complaints(driver)}") from error


def press(driver: Chrome, *keys: str) -> None:
    """Press keys, one after the other, in the element that has the focus."""
    for key in keys:
        ActionChains(driver).send_keys(key).perform()


def complaints(driver: Chrome) -> list[str]:
    """Return what the page has complained about since this was last asked: errors, and what it was not let load."""
    return [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]


# A colour in the midst of an animation is not the one that is read. (A spinner's animation never ends.)
STILL = """return document.getAnimations().every(
  (each) => each.playState !== "running" || each.effect.getComputedTiming().endTime === Infinity)"""


def findings_of_axe(driver: Chrome, within: str = "body") -> list[str]:
    """Return what hinders who sees badly or has no mouse, one line each: axe-core's serious and critical findings.

    It waits until what has arrived or was struck is at rest.
    """
    wait_for(driver, STILL)
    found = Axe().run(driver, within, {"resultTypes": ["violations"]})
    return [
        f"{each['id']} ({each['impact']}): {each['help']}: {node['target']}: {node['failureSummary']}"
        for each in found["violations"]
        if each["impact"] in GRAVE
        for node in each["nodes"]
    ]


class JupyterLab:
    """A JupyterLab of its own on this machine, in a directory of its own: nobody's settings are read or changed."""

    def __init__(self, directory: Path):
        self.directory, self._token = directory / "lab", secrets.token_hex(16)
        [port] = free_ports(1)
        self.address = f"http://127.0.0.1:{port}"
        self.directory.mkdir()
        own = {
            name: str(directory / name) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
        }
        own |= {"JUPYTERLAB_SETTINGS_DIR": str(directory / "settings"), "IPYTHONDIR": str(directory / "ipython")}
        own |= {
            "JUPYTERLAB_WORKSPACES_DIR": str(directory / "workspaces"),
            "PYTHONPATH": str(Path(__file__).parents[1]),
        }
        (settings := directory / "settings" / "@jupyterlab" / "apputils-extension").mkdir(parents=True)
        (settings / "notification.jupyterlab-settings").write_text('{"fetchNews": "false"}')
        command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}"]
        command += ["--ServerApp.port_retries=0", f"--IdentityProvider.token={self._token}", "--allow-root"]
        command += ["--LabApp.expose_app_in_browser=True", "--LabApp.news_url="]
        self._process = ChildProcess(
            command, directory / "jupyterlab.log", cwd=self.directory, env={**os.environ, **own}
        )

    def open(self, driver: Chrome, cells: Sequence[str], name: str = "page.ipynb") -> None:
        """Open a new notebook of these code cells in the browser; nothing is run yet."""
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
        nbformat.write(notebook, self.directory / name)
        self.reopen(driver, name)

    def reopen(self, driver: Chrome, name: str = "page.ipynb") -> None:
        """Open a notebook that is there; a kernel that it has is kept."""
        driver.get(f"{self.address}/doc/tree/{name}?token={self._token}&reset")
        wait_for(driver, "return document.querySelector('.jp-Notebook .jp-Cell') && !!window.jupyterapp")
        # Who runs a cell before the kernel is there is asked which one it should be.
        wait_for(
            driver, "return window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status == 'idle'"
        )

    def run(self, driver: Chrome, command: str = "notebook:run-all-cells") -> None:
        """Run a command of JupyterLab, and wait until no cell runs any more."""
        driver.execute_async_script(
            "const done = () => arguments[1](); window.jupyterapp.commands.execute(arguments[0]).then(done, done)",
            command,
        )
        idle = "!/^\\[\\*\\]/.test(cell.textContent)"
        wait_for(driver, f"return [...document.querySelectorAll('.jp-InputPrompt')].every((cell) => {idle})")

    def await_ready(self) -> None:
        """Wait until it answers."""

        def answers() -> bool:
            with urllib.request.urlopen(f"{self.address}/api?token={self._token}", timeout=5) as answer:
                return answer.status == 200

        eventually(lambda: answers() or self._process.exit_code is not None, 60)
        assert self._process.exit_code is None, self._process.last_lines()

    def close(self) -> None:
        """End it: at its leisure, since it ends its kernels then; each of them is in a group of its own."""
        self._process.stop(patience=20)


@pytest.fixture(scope="session")
def jupyterlab(_one_browser: Chrome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterLab]:
    """A JupyterLab for the browser to open notebooks in."""
    lab = JupyterLab(tmp_path_factory.mktemp("jupyterlab"))
    try:
        lab.await_ready()
        yield lab
    finally:
        with contextlib.suppress(WebDriverException):
            _one_browser.get("about:blank")
        lab.close()
