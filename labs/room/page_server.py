"""The web server of the room's page: a Jupyter server with the Voilà extension, and only the services that it needs.

Guarantee: the server refuses a request without the token, one for a host name other than this machine's, and one that
another site has sent. The page loads nothing from other hosts. There is one room, and it ends soon after its last page
is closed. Jupyter's server has settings for the refusals, which are switched on here and tested from outside
(tests/commands/test_room.py); Voilà's own server does not check the Host header, and asks for no token by default.
Limitations: anybody can fetch the static files of Voilà's package, and an account that can read this user's files or
processes finds the token there.

    python -m labs.room.page_server PORT FOLDER [--browser]     the token is in JUPYTER_TOKEN
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from http import HTTPStatus
from pathlib import Path
from typing import Any

import nbformat
from jupyter_server import CallContext
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.serverapp import ServerApp
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from tornado import web
from traitlets.config import Config
from voila import server_extension
from voila.static_file_handler import TemplateStaticFileHandler

NOTEBOOK = "room.ipynb"
PAGE = f"/voila/render/{NOTEBOOK}"
# Seconds that a room runs on without a page, since a browser may connect again after its connection was cut.
GRACE = 10.0
MOMENT = 3.0  # seconds until a page that is reloaded has closed its connection
OPEN_ELSEWHERE = (
    "The room is open in another tab or window. There is one room at a time: close that one, then reload this."
)
FROM_ELSEWHERE = "Cross-site request rejected. Open the address that python -m labs room has printed."
# The page may talk to its own server only. anywidget loads a widget's module from a blob: URL.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
# The messages that a page may send to its kernel: those of widgets, and none that executes code.
MESSAGES = ["comm_open", "comm_close", "comm_msg", "comm_info_request", "kernel_info_request"]


class OneRoom(AsyncMappingKernelManager):
    """Keeps at most one kernel: that of the one room."""

    def __init__(self, **options: Any):
        super().__init__(**options)
        self._door = asyncio.Lock()
        self._visitors: dict[str, JupyterHandler] = {}
        self._last_watched: dict[str, float] = {}

    async def start_kernel(self, **options: Any) -> str:  # type: ignore[override]
        """Start the room, after ending an older one. Raises HTTPError if a page still shows the older one."""
        visitor = CallContext.get(CallContext.JUPYTER_HANDLER)
        async with self._door:
            for other in self.list_kernel_ids():
                await self._end_unless_watched(other)
            room = await super().start_kernel(**options)
            self._visitors = {room: visitor}
            self._last_watched = {room: time.monotonic()}
        return room

    async def _end_unless_watched(self, room: str) -> None:
        deadline = time.monotonic() + MOMENT
        while self._is_watched(room):
            if time.monotonic() > deadline:
                raise web.HTTPError(HTTPStatus.CONFLICT, OPEN_ELSEWHERE)
            await asyncio.sleep(0.1)
        with contextlib.suppress(KeyError, web.HTTPError):  # its page may have ended it meanwhile
            await self.shutdown_kernel(room)

    def _is_watched(self, room: str) -> bool:
        """Tell whether a page is connected to the room, or waits for it to open."""
        visitor: Any = self._visitors.get(room)
        waits = bool(visitor and not visitor._finished and not visitor.request.connection.stream.closed())
        return room in self and (waits or self._kernel_connections.get(room, 0) > 0)

    async def cull_kernel_if_idle(self, kernel_id: str) -> None:
        """End a room that no page has shown for GRACE seconds. Jupyter's server calls this every second.

        A kernel's own idle time is not used, since a room is always busy.
        """
        now = time.monotonic()
        if self._is_watched(kernel_id):
            self._last_watched[kernel_id] = now
        # setdefault, since a room that is just starting has no page yet
        elif now - self._last_watched.setdefault(kernel_id, now) > GRACE:
            await self.shutdown_kernel(kernel_id)


class RoomServer(ServerApp):
    """Jupyter's server with the services that the page needs: login, kernels and their channels."""

    default_services: Any = ("auth", "kernels")

    def init_signal(self) -> None:
        """Treat SIGINT like SIGTERM: end the room, then the server.

        By default, Jupyter's server asks for a confirmation in a terminal, ignores SIGINT if a script has started it in
        the background, and else stops in the middle of its work.
        """
        super().init_signal()
        signal.signal(signal.SIGINT, self._signal_stop)


class TemplateFiles(TemplateStaticFileHandler):
    """Serves the files of Voilà's templates to anybody, and answers 404 for every other path.

    Voilà's own handler answers 500 for a path without two slashes, without `static`, or with a NUL.
    """

    @classmethod
    def get_absolute_path(cls, root: str, path: str) -> str:
        try:
            return super().get_absolute_path(root, path)
        except (ValueError, AssertionError, UnboundLocalError, OSError) as error:
            raise web.HTTPError(HTTPStatus.NOT_FOUND) from error

    def parse_url_path(self, url_path: str) -> str:
        try:
            return super().parse_url_path(url_path)
        except (ValueError, AssertionError) as error:
            raise web.HTTPError(HTTPStatus.NOT_FOUND) from error

    def validate_absolute_path(self, root: str, absolute_path: str) -> str | None:
        try:
            return super().validate_absolute_path(root, absolute_path)
        except (ValueError, AssertionError, OSError) as error:
            raise web.HTTPError(HTTPStatus.NOT_FOUND) from error


def admit(visitor: JupyterHandler, notebook: nbformat.NotebookNode, cwd: str) -> None:
    """Let a visitor see the page. Raises HTTPError for a request from another site without the token.

    A visitor with the token in the address is redirected to the address without it, since an address bar on a
    projector can be read by everybody.
    """
    if visitor.get_argument("token", ""):
        visitor.set_header("Refresh", f"0; url={PAGE}")
        raise web.Finish
    if visitor.request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        raise web.HTTPError(HTTPStatus.FORBIDDEN, FROM_ELSEWHERE)


def without_formulas(page: dict[str, Any], **about: Any) -> dict[str, Any]:
    """Return the page's settings with a stub instead of MathJax, which would come from another host."""
    return page | {"fullMathjaxUrl": "/voila/templates/room/static/no_formulas.js"}


def configuration(port: int, folder: Path, browser: bool) -> Config:
    """Return all settings of Jupyter's server and Voilà; they read no others."""
    c = Config()
    c.ServerApp.ip, c.ServerApp.port, c.ServerApp.port_retries = "127.0.0.1", port, 0
    c.ServerApp.allow_remote_access = False  # makes it check the Host header
    c.ServerApp.allow_unauthenticated_access = False
    c.ServerApp.allow_root = c.ServerApp.answer_yes = True
    c.ServerApp.open_browser, c.ServerApp.default_url = browser, PAGE
    c.ServerApp.root_dir = str(folder)
    c.ServerApp.jpserver_extensions = {"voila.server_extension": True}
    c.ServerApp.kernel_manager_class = OneRoom
    c.ServerApp.tornado_settings = {"headers": {"Content-Security-Policy": POLICY}}
    c.IdentityProvider.cookie_options = {"SameSite": "Lax", "HttpOnly": True}
    c.OneRoom.allowed_message_types, c.OneRoom.buffer_offline_messages = MESSAGES, False
    c.OneRoom.cull_idle_timeout, c.OneRoom.cull_interval = int(GRACE), 1
    c.KernelManager.autorestart, c.KernelManager.shutdown_wait_time = False, 20.0
    c.VoilaConfiguration.template, c.VoilaConfiguration.file_allowlist = "room", []
    c.VoilaConfiguration.show_tracebacks = True  # or nobody would see why a room cannot be opened
    c.VoilaConfiguration.allow_template_override = c.VoilaConfiguration.allow_theme_override = "NO"
    c.VoilaConfiguration.prelaunch_hook, c.VoilaConfiguration.page_config_hook = admit, without_formulas
    return c


def main(port: str, folder: str, *browser: str) -> None:
    setattr(server_extension, TemplateStaticFileHandler.__name__, TemplateFiles)  # Voilà has no setting for it
    server = RoomServer(config=configuration(int(port), Path(folder), bool(browser)))
    server.initialize(argv=[], find_extensions=False)
    server.start()
    # An interrupted request leaves threads that wait for its end, and the interpreter would wait for them.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
