"""Errors of the lab's own in a notebook: the message, and the student's own lines that led to it.

What the lab raises says what happened and what to do. The lines of the lab that it passed through say nothing to who
did not write them; `%tb` shows them all. Other errors are shown as ever.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

OURS = ("labs.", "exactly_once_kafka.")


def show_expected_errors_briefly(shell: Any) -> None:
    """Do so in `shell`; None is no notebook."""
    if shell is not None:
        shell.set_custom_exc((Exception,), _show)


def _show(
    shell: Any, kind: type[BaseException], error: BaseException, frames: TracebackType, tb_offset: int | None = None
) -> None:
    if not kind.__module__.startswith(OURS):
        shell.showtraceback((kind, error, frames), tb_offset=tb_offset)
        return
    sys.last_type, sys.last_value, sys.last_traceback = kind, error, frames  # for %tb
    cause, context = error.__cause__, error.__context__
    error.__cause__ = error.__context__ = None
    try:
        lines = shell.InteractiveTB.structured_traceback(kind, error, of_cells(frames, shell.user_ns), tb_offset=0)
    finally:
        error.__cause__, error.__context__ = cause, context
    shell._showtraceback(kind, error, lines)


def of_cells(frames: TracebackType | None, names: dict[str, Any]) -> TracebackType | None:
    """Return the frames whose globals are `names`, those of cells, without those in between."""
    if frames is None:
        return None
    rest = of_cells(frames.tb_next, names)
    if frames.tb_frame.f_globals is not names:
        return rest
    return TracebackType(rest, frames.tb_frame, frames.tb_lasti, frames.tb_lineno)
