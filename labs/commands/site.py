"""Build the course as static pages, from the committed lessons and docs. No kernel, no network, no server."""

from __future__ import annotations

import argparse
from pathlib import Path

EXAMPLES = """examples:
  python -m labs site
  python -m labs site --output /srv/www/exactly-once
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output", type=Path, default=Path("out/site"), help="directory of the pages (default: %(default)s)"
    )


def run(arguments: argparse.Namespace) -> int:
    from labs.commands.console import bench_progress, plain_console
    from labs.site.build import build

    with bench_progress(plain_console(stderr=True)) as progress:
        built = build(arguments.output, done=lambda n, of, title: progress.show("pages", n, of, title))
    print(f"{built.pages} pages, {built.bytes / 1e6:.1f} MB: {arguments.output / 'index.html'}")
    return 0
