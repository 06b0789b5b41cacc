"""Write a seeded access log to standard output or a file: the same seed gives the same log."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

EXAMPLES = """examples:
  python -m labs generate --requests 100000 > access.log
  python -m labs generate --classroom --style csv
  python -m labs generate --requests 5000 --disorder-ms 5000 --stragglers 0.01 --output access.log
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--requests", type=int, default=10_000, help="how many lines (default: %(default)s)")
    parser.add_argument("--clients", type=int, default=1000, help="how many IPs (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=7, help="(default: %(default)s)")
    parser.add_argument("--rate", type=float, default=200.0, help="requests per second (default: %(default)s)")
    parser.add_argument("--disorder-ms", type=int, default=0, help="how far behind a line may be, at most 5000")
    parser.add_argument("--stragglers", type=float, default=0.0, help="fraction of lines that come even later")
    parser.add_argument("--classroom", action="store_true", help="a log with each IP exactly ten times in every window")
    parser.add_argument("--style", choices=("combined", "common", "csv"), default="combined")
    parser.add_argument("--output", help="file to write (default: standard output)")


def run(arguments: argparse.Namespace) -> int:
    from labs.pipeline.log.access_log import Access
    from labs.pipeline.log.generate import Traffic, classroom, format_line

    accesses: Iterable[Access] = classroom(seed=arguments.seed)
    if not arguments.classroom:
        accesses = Traffic(
            requests=arguments.requests,
            clients=arguments.clients,
            seed=arguments.seed,
            rate=arguments.rate,
            disorder_ms=arguments.disorder_ms,
            stragglers=arguments.stragglers,
        )
    lines = (format_line(access, arguments.style) + "\n" for access in accesses)
    if arguments.output:
        with open(arguments.output, "w") as file:
            file.writelines(lines)
    else:
        sys.stdout.writelines(lines)
    return 0
