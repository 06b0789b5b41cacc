"""Fetch and check everything that is not a Python package, the jars and a Java if there is none; quiet JupyterLab."""

from __future__ import annotations

import argparse
import subprocess
import sys

from labs.commands.console import plain_console

# Voilà shows one page, that of the room: in JupyterLab it would give pictures to who has no token.
WITHOUT_VOILA = (
    ("server", "extension", "disable", "--sys-prefix", "voila.server_extension"),
    ("labextension", "disable", "--level", "sys_prefix", "@voila-dashboards/jupyterlab-preview"),
)


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
    java = find_java()
    console.print(f"Java {java.version} ({java.origin})")
    with console.status("Fetching and checking the jars of Kafka and of Spark's connector (20 s the first time)"):
        jars = all_jars()
    console.print(f"{len(jars)} jars, all as recorded")
    with console.status("Recording what Java loads, so that it starts in less time (half a minute, once; 200 MB)"):
        why_not = make_archives()
    console.print(f"Java starts as always: {why_not}" if why_not else "Java starts quickly")
    return 0


def keep_voila_out() -> None:
    """Switch Voilà off in the JupyterLab of this environment. Raises RuntimeError."""
    for command in WITHOUT_VOILA:
        ran = subprocess.run([sys.executable, "-m", "jupyter", *command], capture_output=True, text=True)
        if ran.returncode:
            raise RuntimeError(f"jupyter {' '.join(command)} failed: {(ran.stderr or ran.stdout).strip()}")
