"""The student's file as a module, and what the exercise asks of it."""

from __future__ import annotations

import inspect
import linecache
import sys
import types
from pathlib import Path
from typing import Any


class Unusable(Exception):
    """The file does not have what the exercise asks for; `kind` is the ending to note."""

    def __init__(self, kind: str, what: str):
        super().__init__(what)
        self.kind = kind


def load(file: str, shown_as: str) -> types.ModuleType:
    """Execute the student's file as a module."""
    source = Path(file).read_text("utf-8")
    linecache.cache[shown_as] = (len(source), None, source.splitlines(keepends=True), shown_as)
    module = types.ModuleType("student")
    module.__file__ = shown_as
    sys.modules["student"] = module
    exec(compile(source, shown_as, "exec"), module.__dict__)
    return module


def find(module: types.ModuleType, name: str) -> Any:
    """Return the function that the exercise asks for. Raises Unusable."""
    found = getattr(module, name, None)
    if found is None:
        there = [n for n, value in vars(module).items() if inspect.isfunction(value)]
        raise Unusable("missing", f"there is no function {name}(…); there is: {', '.join(there) or 'none'}")
    if not callable(found):
        raise Unusable("missing", f"{name} should be a function, and is {type(found).__name__}")
    return found


def require_parameters(function: Any, arguments: tuple, names: str) -> None:
    """Raise Unusable unless the function can be called with these arguments."""
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        has = inspect.signature(function)
        raise Unusable("signature", f"{function.__name__}{has} is called with ({names}): {error}") from None
    except ValueError:  # a callable without a signature
        return
