"""The operations room as a page on this machine, behind a token: a folder for it, and the server that shows it.

Guarantee: when this process ends, however it ends, the server, its room and their processes end too, and the folder is
deleted. Limitations: see labs/room/page_server.py. POSIX only (Linux and macOS).
"""

from __future__ import annotations

import json
import math
import os
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import nbformat

from labs.equipment.child_process import ChildProcess, for_python
from labs.equipment.ports import free_ports, require_free
from labs.equipment.waiting import eventually

HERE = Path(__file__).parent
KERNEL = "room"
FOLDERS = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
PAGE = "/voila/render/room.ipynb"


class PageFailed(RuntimeError):
    """The page's server did not start, or it ended by itself."""


class RoomPage:
    """A page that shows the result of the notebook cell `cell`, such as `cell_of(options)`, which opens a room.

    `port` must be free; by default a free one is chosen. `browser` opens the page in the user's browser.
    """

    def __init__(self, cell: str, port: int | None = None, browser: bool = False):
        if port is None:
            [port] = free_ports(1)
        require_free(port)
        self._port = port
        self._folder, self._token = Path(tempfile.mkdtemp(prefix="labs-room-")), secrets.token_hex(24)
        self.address = f"http://127.0.0.1:{port}{PAGE}?token={self._token}"
        try:
            self._lay_out(cell)
            command = [sys.executable, "-m", "labs.room.page_server", str(port), str(self._folder)]
            command += ["--browser"] if browser else []
            log = self._folder / "server.log"
            self._process = ChildProcess(command, log, self._folder, cwd=self._folder, env=self._environment())
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    @property
    def pid(self) -> int | None:
        """The server's process id while it exists, else None."""
        return self._process.pid

    def _lay_out(self, cell: str) -> None:
        # A relative folder to save to is below the user's working directory, not below the page's folder.
        cell = f"import os\nos.chdir({os.getcwd()!r})\n{cell}"
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
        notebook.metadata["kernelspec"] = {"name": KERNEL, "display_name": KERNEL, "language": "python"}
        notebook.metadata["title"] = "The operations room"
        nbformat.write(notebook, self._folder / "room.ipynb")
        data = self._folder / "JUPYTER_DATA_DIR"
        (kernel := data / "kernels" / KERNEL).mkdir(parents=True)
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        (kernel / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": KERNEL, "language": "python"}))
        shutil.copytree(HERE / "template", data / "voila" / "templates" / "room")

    def _environment(self) -> dict[str, str]:
        """Return an environment in which Jupyter and IPython neither read nor change the user's settings."""
        own = {name: str(self._folder / name) for name in FOLDERS}
        kept = {name: value for name, value in for_python().items() if not name.startswith("JUPYTER")}
        return kept | own | {"JUPYTER_TOKEN": self._token}

    def await_ready(self) -> None:
        """Wait until the server listens. Raises PageFailed, with its last lines, if it ends instead."""
        runtime = self._folder / "JUPYTER_RUNTIME_DIR"

        def listens() -> bool:
            with socket.create_connection(("127.0.0.1", self._port), timeout=5):
                return any(runtime.glob("jpserver-*.json"))  # it is our server that listens there

        eventually(lambda: self._process.pid is None or listens(), 60)
        if self._process.pid is None:
            self.await_end()

    def await_end(self) -> NoReturn:
        """Wait until the server ends by itself, and raise PageFailed."""
        eventually(lambda: self._process.pid is None, math.inf, interval=0.5)
        raise PageFailed(f"the page's server ended by itself; its last lines are:\n{self._process.last_lines()}")

    def __enter__(self) -> RoomPage:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the server, which ends its room first."""
        try:
            self._process.stop()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)


def cell_of(options: Mapping[str, Any]) -> str:
    """Return the cell that opens a room with these options."""
    return f"from labs.room.widget import room\nroom(**{dict(options)!r})"
