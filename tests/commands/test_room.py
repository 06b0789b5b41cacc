"""`python -m labs room`: who is let in, what is left behind, and what the page shows in a real browser.

Most of it is asked of a page whose room is a small widget with a child process on a leash: what the page promises does
not depend on what it shows.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psutil
import pytest
from jupyter_server.extension.config import ExtensionConfigManager

from labs.equipment.ports import require_free
from labs.equipment.waiting import eventually
from labs.room.page import PAGE, RoomPage
from tests.browser import complaints, findings_of_axe, set_scheme, wait_for
from tests.processes import next_line

ROOT = Path(__file__).parents[2]
CELL = """
import pathlib
from labs.equipment.child_process import ChildProcess
from labs.schedules.timeline.timeline import timeline
child = ChildProcess(["sleep", "600"], pathlib.Path("/dev/null"))
timeline()
"""
SHOWN = "return document.querySelector('.eo-timeline')"
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
REFUSED = (302, 403, 404)  # 302: to the form that asks for the token
pytestmark = pytest.mark.timeout(600)


class Visitor:
    """Asks a page's server for things, with headers of its own."""

    def __init__(self, address: str):
        parts = urlsplit(address)
        assert parts.port is not None
        self.port, self.token = parts.port, parse_qs(parts.query)["token"][0]

    def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], str]:
        """Return (status, headers, text); of a connection that was upgraded no text."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            text = "" if answer.status == 101 else answer.read().decode()
            return answer.status, dict(answer.getheaders()), text
        finally:
            connection.close()

    def log_in(self) -> dict[str, str]:
        """Return the headers of who has shown the token."""
        status, headers, _ = self.ask(f"{PAGE}?token={self.token}")
        assert (status, headers["Refresh"]) == (200, f"0; url={PAGE}")
        return {"Cookie": headers["Set-Cookie"].partition(";")[0]}


def processes_below(pid: int) -> list[psutil.Process]:
    """Return the processes that descend from one, those in sessions of their own too."""
    return psutil.Process(pid).children(recursive=True)


def folders() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("labs-room-*"))


@pytest.fixture(scope="module", autouse=True)
def _temporary_folder_with_a_space(tmp_path_factory):
    tmp_path_factory.getbasetemp()  # pytest makes it when it is first asked for, and in here it would be deleted
    # A short name: a browser makes a socket in there, whose path may have a hundred characters and no more.
    # It lives on and may write while the folder is being deleted.
    things = tempfile.TemporaryDirectory(prefix="for ünfinished things ", ignore_cleanup_errors=True)
    with things as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", folder)
        yield


@pytest.fixture(scope="module")
def page():
    with RoomPage(CELL) as page:
        page.await_ready()
        yield page


@pytest.fixture
def visitor(page):
    return Visitor(page.address)


def kernels(visitor: Visitor) -> list[dict]:
    return json.loads(visitor.ask("/api/kernels", Authorization=f"token {visitor.token}")[2])


@pytest.mark.long
def test_nobody_gets_in_without_the_token(visitor):
    known = visitor.log_in()
    for wrong in ({}, {"Cookie": known["Cookie"][:-3] + 'xx"'}, {"Authorization": "token 0000"}):
        for path in (PAGE, "/", "/voila", "/voila/tree", "/voila/api/contents/", f"{PAGE}?token=0000"):
            status, headers, text = visitor.ask(path, **wrong)
            assert status in REFUSED, path
            assert status != 302 or headers["Location"].startswith(("/login", PAGE)), path
            assert "jupyter-config-data" not in text
        for path in ("/api/kernels", "/api/kernels/1-2-3-4-5", "/voila/files/room.ipynb"):
            assert visitor.ask(path, **wrong)[0] == 403, path
        assert visitor.ask("/api/kernels", "POST", **wrong)[0] == 403
        assert visitor.ask("/api/kernels/1-2-3-4-5/channels", **UPGRADE, **wrong)[0] == 403
    assert visitor.ask("/api/kernels", **known, Referer=f"http://127.0.0.1:{visitor.port}{PAGE}")[0] == 200
    assert kernels(visitor) == [], "who was refused has opened a room"


NO_FILES = (
    *(
        "",
        "x",
        "room",
        "room/static",
        "room/x/y",
        "none/static/x",
        "room/static/%00",
        "%00/static/x",
        "%2e%2e/static/x",
    ),
    *("room%2Fstatic%2F%00", "room/static/" + "x" * 5_000, "room/static/..%2f..%2fconf.json", "room/static/%e2%80%a8"),
    *("room/static", "room//static//x", "%ff", "room/static/%ff", "a%0d%0ab/static/x", "room%5Cstatic%5Cx"),
)


@pytest.mark.long
def test_path_of_no_file_is_not_found_and_no_error_of_the_server(visitor):
    for method in ("GET", "HEAD"):
        for path in NO_FILES:
            assert visitor.ask(f"/voila/templates/{path}", method)[0] in (400, 403, 404), path
        for path in ("/%00", "/%ff", "/static/%00", "/voila/static/%00", "/voila/render/%00", "/files/%00"):
            assert visitor.ask(path, method)[0] < 500, path
    assert visitor.ask("/voila/templates/room/static/no_formulas.js")[0] == 200


@pytest.mark.long
def test_what_else_a_server_of_jupyter_has_is_not_there(visitor):
    shown = {"Authorization": f"token {visitor.token}"}
    for path in (
        "/api/contents",
        "/api/terminals",
        "/api/sessions",
        "/lab",
        "/tree",
        "/api/shutdown",
    ):
        assert visitor.ask(path, **shown)[0] == 404, path


@pytest.mark.long
@pytest.mark.parametrize(
    "host", ["lab.example", "lab.example:{port}", "192.0.2.7:{port}", "127.0.0.1.lab.example:{port}"]
)
def test_under_the_name_of_another_host_nobody_gets_in(visitor, host):
    known, host = visitor.log_in(), host.format(port=visitor.port)
    for path in (PAGE, f"{PAGE}?token={visitor.token}", "/login", "/api/kernels"):
        assert visitor.ask(path, **known, Host=host)[0] == 403, path
    channels = "/api/kernels/1-2-3-4-5/channels"
    assert visitor.ask(channels, **known, **UPGRADE, Host=host, Origin=f"http://{host}")[0] == 403
    assert visitor.ask("/login", Host=f"localhost:{visitor.port}")[0] == 200


@pytest.mark.long
def test_who_is_sent_by_another_site_is_refused(visitor):
    known = visitor.log_in()
    for site in ("cross-site", "same-site"):
        status, _, text = visitor.ask(PAGE, **known, **{"Sec-Fetch-Site": site})
        assert (status, "Cross-site request rejected" in text) == (403, True)
    assert kernels(visitor) == []
    status, _, text = visitor.ask(PAGE, **known, **{"Sec-Fetch-Site": "none"})
    [room] = re.findall(r'"kernelId": "([\w-]+)"', text)
    for origin in ("http://lab.example", "http://127.0.0.1:1", "null"):
        assert visitor.ask("/api/kernels", "POST", **known, Origin=origin)[0] in (403, 404)
        assert visitor.ask(f"/voila/api/shutdown/{room}", "POST", **known, Origin=origin)[0] in (403, 404)
        assert visitor.ask(f"/api/kernels/{room}/channels", **known, **UPGRADE, Origin=origin)[0] == 403
    own = f"http://127.0.0.1:{visitor.port}"
    assert visitor.ask(f"/voila/api/shutdown/{room}", "POST", **known, Origin=own)[0] == 403, "without the page's own"
    assert visitor.ask(f"/api/kernels/{room}/channels", **UPGRADE, Origin=own)[0] == 403, "without the token"
    assert visitor.ask(f"/api/kernels/{room}/channels", **known, **UPGRADE, Origin=own)[0] == 101
    assert [each["id"] for each in kernels(visitor)] == [room]


@pytest.fixture
def shown(browser, page, visitor):
    """The browser with the page in it."""
    browser.get(page.address)
    wait_for(browser, SHOWN, 300)
    yield browser
    browser.get("about:blank")
    eventually(lambda: not kernels(visitor), timeout=60)


def children(page: RoomPage) -> dict[str, psutil.Process]:
    """Return the kernel and what it has started."""
    assert page.pid is not None
    found = processes_below(page.pid)
    names = {"kernel": "ipykernel_launcher", "child": "sleep"}
    return {name: next(each for each in found if word in " ".join(each.cmdline())) for name, word in names.items()}


@pytest.mark.long
def test_in_a_browser(shown, visitor):
    """The widget is there, nothing came from another host, and the address that all can read has no token."""
    assert shown.current_url == f"http://127.0.0.1:{visitor.port}{PAGE}"
    assert (shown.title, complaints(shown)) == ("The operations room", [])
    loaded = shown.execute_script("return performance.getEntriesByType('resource').map((each) => each.name)")
    assert any("anywidget" in name for name in loaded)
    assert [
        name for name in loaded if not name.startswith((f"http://127.0.0.1:{visitor.port}/", "blob:", "data:"))
    ] == []
    assert findings_of_axe(shown) == []
    asks = "const event = new Event('beforeunload', { cancelable: true }); "
    asks += "dispatchEvent(event); return event.defaultPrevented"
    assert not shown.execute_script(asks)
    room = "<p id=room class=eo-live data-sent></p>"
    shown.execute_script("document.body.insertAdjacentHTML('beforeend', arguments[0])", room)
    assert shown.execute_script(asks), "a reload would end a room in which something was sent"
    shown.execute_script("document.getElementById('room').remove()")
    ink = "return getComputedStyle(document.querySelector('.eo-timeline')).color"
    assert shown.execute_script(ink) == "rgb(34, 34, 34)"


@pytest.mark.long
def test_a_reload_opens_another_room_in_the_dark_for_who_likes_it(shown, visitor, page):
    [first], before = kernels(visitor), children(page)
    set_scheme(shown, "dark")
    eventually(lambda: shown.execute_script("return document.body.dataset.jpThemeLight") == "false", 10)
    shown.refresh()
    wait_for(shown, SHOWN, 150)
    [second] = kernels(visitor)
    assert first["id"] != second["id"]
    eventually(lambda: not any(each.is_running() for each in before.values()))
    ink = "return getComputedStyle(document.querySelector('.eo-timeline')).color"
    eventually(lambda: shown.execute_script(ink) == "rgb(238, 238, 238)")
    assert shown.execute_script("return getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"


@pytest.mark.long
def test_a_second_tab_is_told_and_the_first_goes_on(shown, visitor, page):
    [room], first = kernels(visitor), shown.current_window_handle
    shown.switch_to.new_window("tab")
    try:
        shown.get(page.address)
        wait_for(shown, "return document.body.innerText.includes('The room is open in another tab')")
    finally:
        shown.close()
        shown.switch_to.window(first)
    assert [each["id"] for each in kernels(visitor)] == [room["id"]]
    assert shown.execute_script(SHOWN)


@pytest.mark.long
def test_closing_the_tab_ends_the_room(browser, visitor, page):
    first = browser.current_window_handle
    browser.switch_to.new_window("tab")
    browser.get(page.address)
    wait_for(browser, SHOWN, 300)
    before = children(page)
    browser.close()
    browser.switch_to.window(first)
    eventually(lambda: not any(each.is_running() for each in before.values()), timeout=60)
    assert kernels(visitor) == []


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *arguments) -> None:
        """Say nothing."""


@pytest.mark.long
def test_a_page_of_another_site_reaches_nothing_in_a_browser_that_has_the_cookie(shown, visitor, tmp_path):
    """Neither as another site (localhost) nor as another origin of the same one (another port)."""
    [room] = kernels(visitor)
    (tmp_path / "evil.html").write_text("<!DOCTYPE html><title>Another site</title>")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        first = shown.current_window_handle
        shown.switch_to.new_window("tab")
        try:
            for host in ("localhost", "127.0.0.1"):
                shown.get(f"http://{host}:{server.server_port}/evil.html")
                assert (
                    shown.execute_async_script(ATTEMPTS, visitor.port, room["id"], PAGE)
                    == "closed; refused; opaque; false"
                )
        finally:
            shown.close()
            shown.switch_to.window(first)
            server.shutdown()
    assert [each["id"] for each in kernels(visitor)] == [room["id"]]


ATTEMPTS = """
const [port, room, page, done] = arguments, at = `http://127.0.0.1:${port}`, said = [];
const socket = new Promise((tell) => {
  const made = new WebSocket(`ws://127.0.0.1:${port}/api/kernels/${room}/channels`);
  made.onopen = () => tell("open"); made.onerror = () => tell("closed");
});
const read = fetch(`${at}/api/kernels`, { credentials: "include" }).then(() => "read", () => "refused");
const end = fetch(`${at}/voila/api/shutdown/${room}`, { method: "POST", mode: "no-cors", credentials: "include" });
const framed = new Promise((tell) => {
  const frame = document.body.appendChild(document.createElement("iframe"));
  frame.onload = () => { try { tell(String(!!frame.contentDocument)); } catch { tell("false"); } };
  frame.src = at + page;
});
Promise.all([socket, read, end.then((answer) => answer.type), framed]).then((all) => done(all.join("; ")));
"""

SERVE = f"""
from labs.room.page import RoomPage
with RoomPage({CELL!r}) as page:
    page.await_ready()
    print(page.address, page.pid, flush=True)
    page.await_end()
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("victim", "number"),
    [
        ("command", signal.SIGINT),
        ("command", signal.SIGKILL),
        ("server", signal.SIGINT),
        ("server", signal.SIGKILL),
    ],
    ids=lambda each: getattr(each, "name", each),
)
def test_whoever_is_killed_nothing_is_left(victim, number):
    before = folders()
    # A script starts what it sends to the background deaf to Ctrl-C; the server hears it all the same.
    deaf = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)" if victim == "server" else ""
    command = [sys.executable, "-c", deaf + SERVE]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            address, server = next_line(process.stdout).split()
            visitor = Visitor(address)
            status, _, text = visitor.ask(PAGE, **visitor.log_in())
            assert (status, "jupyter-config-data" in text) == (200, True)
            below = processes_below(process.pid)
            assert {"sleep", "ipykernel_launcher"} <= {word for each in below for word in each.cmdline()}
            os.kill(process.pid if victim == "command" else int(server), number)
            process.communicate(timeout=120)
        finally:
            process.kill()
    eventually(lambda: not [each for each in below if each.is_running()], timeout=90)
    eventually(lambda: folders() <= before, timeout=30)
    require_free(visitor.port)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_server_ends_while_a_room_is_being_opened(number):
    with RoomPage("import signal\nsignal.pause()") as page:
        page.await_ready()
        visitor = Visitor(page.address)
        headers = visitor.log_in()
        visit = threading.Thread(target=broken_off, args=(visitor, headers))
        visit.start()
        eventually(lambda: [each for each in kernels(visitor) if each["execution_state"] == "busy"], timeout=60)
        assert page.pid is not None
        os.kill(page.pid, number)
        eventually(lambda: page.pid is None, timeout=60)
    visit.join()


def broken_off(visitor: Visitor, headers: dict[str, str]) -> None:
    with contextlib.suppress(OSError, http.client.HTTPException):
        visitor.ask(PAGE, **headers)


def started(*options: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "labs", "room", "--no-browser", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_the_command_says_where_the_page_is_and_ends_in_one_line(number):
    before = folders()
    with started() as process:
        try:
            address = next_line(process.stdout)
            process.send_signal(number)
            rest, said = process.communicate(timeout=120)
        finally:
            process.kill()
    assert re.fullmatch(rf"http://127\.0\.0\.1:\d+{re.escape(PAGE)}\?token=[0-9a-f]{{48}}\n", address)
    assert (rest, said) == ("", "Ctrl-C ends the room and its page\nstopped\n")
    assert process.returncode == 0
    assert folders() <= before


@pytest.mark.long
def test_a_port_in_use_is_one_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with started("--port", str(port)) as process:
            said = process.communicate(timeout=120)
    assert said[0] == ""
    assert re.fullmatch(
        rf"python -m labs room: port {port} on 127\.0\.0\.1 is in use by another program; .*\n", said[1]
    )
    assert process.returncode == 1


def test_jupyterlab_itself_has_no_such_pages():
    """`make setup` switches Voilà off there: it serves pictures to anybody."""
    below = Path(sys.prefix) / "etc" / "jupyter"
    manager = ExtensionConfigManager(read_config_path=[str(below)], write_config_dir=str(below))
    assert manager.get_jpserver_extensions("jupyter_server_config") == {
        "jupyter_lsp": True,
        "jupyter_server_terminals": True,
        "jupyterlab": True,
        "notebook_shim": True,
        "voila.server_extension": False,
    }


@pytest.mark.bench
@pytest.mark.parametrize("options", [["--nodes", "0"], ["--rate", "none"], ["--stage", "best"], ["--port", "99999"]])
def test_a_wrong_option_is_told_before_anything_starts(options, capsys):
    from labs.commands.main import main

    with contextlib.suppress(SystemExit):
        main(["room", *options])
    assert f"argument {options[0]}: " in capsys.readouterr().err


def test_a_recording_becomes_one_page_that_loads_nothing(tmp_path, capsys):
    from labs.commands.main import main

    published = ROOT / "docs" / "recordings" / "with-the-marker.json"
    recording = {**json.loads(published.read_text()), "title": "a </script><script>alert(1)</script> title"}
    (tmp_path / "recording.json").write_text(json.dumps(recording))
    assert main(["room", "--play", str(tmp_path), "--no-browser"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'room.html'}\n"
    page = (tmp_path / "room.html").read_text()
    assert page.count("</script>") == 1
    assert "default-src 'none'" in page
    assert not re.search(r"(src|href)=", page)


def test_a_folder_without_a_recording_is_one_line(tmp_path, capsys):
    from labs.commands.main import main

    assert main(["room", "--play", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("python -m labs room: ")
    assert not (tmp_path / "room.html").exists()
