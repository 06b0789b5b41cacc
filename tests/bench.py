"""Which tests take long: what needs the bench, Kafka, Spark or any process of its own; and what tries every order.

Both are marked, and `make check` leaves them out. Found from what a test's code names, and the fixtures and helpers of
its module that it uses; so nobody has to mark one.
"""

from __future__ import annotations

import inspect
from types import CodeType, FunctionType, ModuleType

FIXTURES = {"broker", "spark", "browser", "jupyterlab", "room", "installed"}
STARTERS = {
    *("Broker", "open_broker", "proxied_broker", "Postgres", "SparkCluster", "spark_session"),
    *("Apart", "JobProcess", "Room", "RoomPage", "run_chaos", "run_stage", "check", "subprocess", "Popen", "main"),
    *("execute", "start_new_kernel", "open_bench", "Interpreter"),
}


# Those of the model that go through all of its states, and building the site, which is made of all pages.
EXHAUSTIVE = {"explore", "explored", "reachable", "build"}


def needs_bench(item) -> bool:
    """Tell whether a collected test starts anything, or uses what another has started."""
    return bool(FIXTURES & set(item.fixturenames)) or _calls(item, STARTERS)


def is_exhaustive(item) -> bool:
    """Tell whether a collected test goes through all there is."""
    return _calls(item, EXHAUSTIVE)


def _calls(item, wanted: set[str]) -> bool:
    fixtures = [defs[-1].func for defs in item._fixtureinfo.name2fixturedefs.values()]
    own = [fixture for fixture in fixtures if fixture.__module__ == item.module.__name__]
    return any(reaches(function, wanted, item.module, set()) for function in (item.function, *own))


def reaches(function: FunctionType, wanted: set[str], module: ModuleType, seen: set[str]) -> bool:
    names = _names(inspect.unwrap(function).__code__)
    if names & wanted:
        return True
    helpers = {name: getattr(module, name, None) for name in names - seen}
    seen |= names
    return any(
        isinstance(helper, FunctionType) and reaches(helper, wanted, module, seen) for helper in helpers.values()
    )


def _names(code: CodeType) -> set[str]:
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    return set(code.co_names).union(*map(_names, inner))
