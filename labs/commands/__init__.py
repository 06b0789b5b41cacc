"""The command line: one module per command, each with `add_arguments(parser)` and `run(arguments) -> exit code`."""

from labs.commands.main import main

__all__ = ["main"]
