"""Fetch and check the jars, and a Java if there is none; set up JupyterLab; and make later starts faster."""

from __future__ import annotations

import argparse
import compileall
import contextlib
import json
import subprocess
import sys
import sysconfig
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from labs.commands.console import plain_console

# Voilà shows only the room's page: as an extension of JupyterLab it would serve pictures without the token.
WITHOUT_VOILA = (
    ("server", "extension", "disable", "--sys-prefix", "voila.server_extension"),
    ("labextension", "disable", "--level", "sys_prefix", "@voila-dashboards/jupyterlab-preview"),
)

# JupyterLab asks whether to fetch Jupyter's news, and the question would cover the lesson.
WITHOUT_NEWS = {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False}}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--print-connector", action="store_true", help="print the connector's jars, as spark-submit --jars takes them"
    )


def run(arguments: argparse.Namespace) -> int:
    from labs.equipment.class_archive import make_archives
    from labs.equipment.jars import all_jars, connector_jars
    from labs.equipment.java import find_java

    if arguments.print_connector:
        print(",".join(jar.as_uri() for jar in connector_jars()))
        return 0
    console = plain_console(stderr=True)
    keep_voila_out()
    keep_news_out()
    java = find_java()
    console.print(f"Java {java.version} ({java.origin})")
    with console.status("Fetching and checking the jars of Kafka and of Spark's connector (20 s the first time)"):
        jars = all_jars()
    console.print(f"{len(jars)} jars, all as recorded")
    with console.status(
        "Recording the classes that Java loads, so that it starts faster (half a minute, once; 200 MB)"
    ):
        why_not = make_archives()
    console.print(f"Java starts at its usual speed: {why_not}" if why_not else "Java starts quickly")
    with console.status("Compiling the packages of Python, so that it starts faster (15 s, the first time)"):
        compile_packages(sysconfig.get_path("purelib"))
    return 0


def compile_packages(packages: str | Path) -> None:
    """Write the bytecode of all modules in `packages` beside them, with a process for each core.

    uv writes no bytecode. Python writes it at the first import, but not with PYTHONDONTWRITEBYTECODE, and not if the
    user may not write there. Each job then starts a second later. A module that cannot be compiled is left out.
    """
    with contextlib.suppress(OSError, BrokenProcessPool):  # everything works without
        compileall.compile_dir(packages, quiet=2, workers=0)


def keep_voila_out() -> None:
    """Switch Voilà off in the JupyterLab of this environment. Raises RuntimeError."""
    for command in WITHOUT_VOILA:
        ran = subprocess.run([sys.executable, "-m", "jupyter", *command], capture_output=True, text=True)
        if ran.returncode:
            raise RuntimeError(f"jupyter {' '.join(command)} failed: {(ran.stderr or ran.stdout).strip()}")


def keep_news_out(environment: Path = Path(sys.prefix)) -> None:
    """Switch Jupyter's news off in the JupyterLab of this environment, and leave other settings as they are."""
    settings = environment / "share" / "jupyter" / "lab" / "settings" / "overrides.json"
    there = json.loads(settings.read_text()) if settings.exists() else {}
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(json.dumps(there | WITHOUT_NEWS, indent=2) + "\n")
