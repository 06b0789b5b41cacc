"""A student's protocol as a table: the generator runs in advance, and the model reads the table.

The model asks for the next step a hundred thousand times, and a driver on the real Kafka is a process of its own. So
the student's process runs the generator beforehand, in every possible situation: each batch, with an epoch and without,
and each marker that it may read. The steps form a tree, with a branch for each answer.

Guarantee: in each of three rounds the generator did what the table says. Limitations: the situations are those of two
batches of one or two records, and of an older checkpoint.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import GeneratorType
from typing import Any

from exactly_once_kafka.plan import spelled
from exactly_once_kafka.protocol import STEPS as OF_THE_SINK
from exactly_once_kafka.protocol import Batch, Marker, MarkerMismatch, Protocol
from labs.equipment.plain_text import one_line
from labs.exercises.checker.scenario import NoTable
from labs.exercises.checker.student_module import at_line, in_words, require_parameters, safely, where
from labs.schedules.model.drivers_and_network import READINGS
from labs.schedules.model.state import MOST_STEPS, REFUSES, BatchProtocol

STEPS = (*(step for step in OF_THE_SINK if step != "abort"), "note")
SECONDS = 5.0  # for all rounds
MOST_NODES = 4_000  # of a table

# Symptoms of a function that is no protocol, beside "crashed" and "wrong".
UNREADABLE, HUNG, CHANGEABLE = "unreadable", "hung", "changeable"

# The ends of batches 0 and 1: in a random walk, in the model, and in the model after an older checkpoint is restored.
ENDS = ((1, 2), (2, 4), (3, 4))

Node = list[Any]  # a step, and for each answer the node that follows; or REFUSES alone; or None alone, at the end
Course = tuple[str | None, ...]  # steps, and behind them None or REFUSES


class NoProtocol(ValueError):
    """The function is no protocol; the message is one line that says why. `symptom`, `cause`: as in a finding."""

    def __init__(self, symptom: str, why: str, cause: str = ""):
        super().__init__(why)
        self.symptom, self.cause = symptom, cause


@dataclass(frozen=True)
class Situation:
    """A batch at its start in a driver, and the markers that the driver may read during it."""

    batch: Batch
    has_epoch: bool
    markers: tuple[Marker | None, ...]

    def answers(self, step: str) -> tuple[Any, ...]:
        """Return all possible answers to a step."""
        if step in READINGS:
            return self.markers
        return (True,) if step == "rows" else (None,)

    def place(self, step: str, answer: Any) -> int:
        """Return the index of an answer among all possible ones. Raises NoTable."""
        if step not in READINGS:
            return 0
        for n, marker in enumerate(self.markers):
            if _key(marker) == _key(answer):
                return n
        raise NoTable(f"the table has no answer {answer} in batch {self.batch.batch_id}")


def _all_situations() -> Iterator[Situation]:
    for first_end, last_end in ENDS:
        first = Batch("the query", 0, _plan(first_end))
        last = Batch("the query", 1, _plan(last_end), first.plan)
        markers = [None, Marker.of(first), Marker.of(last)]
        if first_end == 3:  # what was published before the older checkpoint was restored
            markers.append(Marker(0, "the query", _plan(2)))
        for batch in (first, last):
            yield Situation(batch, False, tuple(markers))
            yield Situation(batch, True, tuple(markers))


def _plan(end: int) -> str:
    return spelled({"end": end})


def _key(marker: Marker | None) -> tuple[int, str] | None:
    return (marker.batch_id, marker.plan) if marker else None


SITUATIONS = tuple(_all_situations())


# In the process in which the student's code runs


def table_of(function: Callable[..., Any]) -> list[Node]:
    """Run a protocol in all situations, and return what it does in each. Raises NoProtocol, Unusable."""
    if not callable(function):
        raise NoProtocol(UNREADABLE, f"a protocol is a function with yield in it, and not {_shown(function)}")
    require_parameters(function, (None, False), "batch, has_epoch", generator=True)
    runs, order = _Runs(function), range(len(SITUATIONS))
    with _time_limit(function), open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        for n in (*order, *reversed(order)):  # the order matters if the protocol keeps something between calls
            runs.tree(n)
        return [runs.tree(n) for n in order]


class _Runs:
    """Runs a student's generator, a fresh one each time, and compares it with earlier runs that got equal answers."""

    def __init__(self, function: Callable[..., Any]):
        self._function, self._name, self._outside = function, _name(function), _outside(function)
        self._done: dict[tuple[int, tuple[int, ...]], str | None] = {}

    def tree(self, n: int, told: tuple[int, ...] = ()) -> Node:
        """Return its steps in the n-th situation after the answers `told`, with a branch for each further answer."""
        step = self._step(n, told)
        if step in (None, REFUSES):
            return [step]
        return [step, *(self.tree(n, (*told, place)) for place in range(len(SITUATIONS[n].answers(step))))]

    def _step(self, n: int, told: tuple[int, ...]) -> str | None:
        situation = SITUATIONS[n]
        try:
            generator = self._function(situation.batch, situation.has_epoch)
        except Exception as error:
            raise self._crashed(error, n, ()) from None
        if not inspect.isgenerator(generator):
            how = 'each step is to be yielded, as in: yield "rows"'
            raise NoProtocol(UNREADABLE, f"{self._name} has no yield, and returns {_shown(generator)}; {how}")
        step = self._next(generator, None, n, ())
        for k, place in enumerate(told, 1):
            step = self._next(generator, situation.answers(str(step))[place], n, told[:k])
        return step

    def _next(self, generator: GeneratorType[Any, Any, Any], answer: Any, n: int, told: tuple[int, ...]) -> str | None:
        step: Any
        try:
            step = generator.send(answer)
        except StopIteration:
            step = None
        except MarkerMismatch:
            step = REFUSES
        except Exception as error:
            raise self._crashed(error, n, told) from None
        else:
            if not (isinstance(step, str) and step in STEPS):
                why = f"there is no step {_shown(step)}{_line(generator)}; there are: {', '.join(STEPS)}"
                raise NoProtocol(UNREADABLE, why)
            if len(told) == MOST_STEPS:
                why = f"{self._name} yields more than {MOST_STEPS} steps for one batch{_line(generator)}"
                raise NoProtocol(HUNG, f"{why}, {self._when(n, told[:3])}, …")
        before = self._done.setdefault((n, told), step)
        if before != step:
            raise NoProtocol(CHANGEABLE, self._why_changeable(before, step, self._when(n, told)))
        if len(self._done) > MOST_NODES:
            why = f"{self._name} reads the marker so often that there are too many answers to try"
            raise NoProtocol(HUNG, f"{why}: once before the epoch and once after it are enough")
        return step

    def _crashed(self, error: Exception, n: int, told: tuple[int, ...]) -> NoProtocol:
        raised = f"{self._name} raised {in_words(error)}{where(error, _file(self._function))}"
        return NoProtocol("crashed", f"{raised}, {self._when(n, told)}", type(error).__name__)

    def _why_changeable(self, before: Any, now: Any, when: str) -> str:
        changed = [name for name, value in _outside(self._function).items() if self._outside.get(name) != value]
        if changed:
            kept = f"{self._name} keeps something from one call to the next, in {', '.join(sorted(changed))}"
            return f"{kept}: a restarted driver does not have it"
        both = f"once {_in_words(before)}, and once {_in_words(now)}"
        return f"{self._name} depends on chance, on a clock or on kept values: {when} it {both}"

    def _when(self, n: int, told: tuple[int, ...]) -> str:
        """Describe the situation."""
        situation, after = SITUATIONS[n], []
        for k, place in enumerate(told):
            step = str(self._done[n, told[:k]])
            answer = situation.answers(step)[place]
            said = f"batch {answer.batch_id}" if isinstance(answer, Marker) else "none"
            after.append(f"{step} ({said})" if step in READINGS else step)
        begun = f"in batch {situation.batch.batch_id}"
        return f"{begun} after {', '.join(after)}" if after else f"at the beginning of batch {situation.batch.batch_id}"


def _outside(function: Callable[..., Any]) -> dict[str, str]:
    """Return the values that a function and the functions which it calls keep between calls: name -> text."""
    kept, to_do, seen = dict[str, str](), [function] if inspect.isfunction(function) else [], set[int]()
    while to_do:
        function = to_do.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        names = inspect.getclosurevars(function)
        parameters = inspect.signature(function).parameters.values()
        defaults = {each.name: each.default for each in parameters if each.default is not each.empty}
        for name, value in {**names.globals, **names.nonlocals, **defaults, **vars(function)}.items():
            if inspect.isfunction(value):
                to_do.append(value)
            else:
                has_state = hasattr(value, "__dict__") and not inspect.ismodule(value)
                kept[name] = safely(repr, vars(value) if has_state else value)
    return kept


class _TimeIsUp(BaseException):
    """The time limit. It is no Exception, so that a student's code does not catch it by accident."""


@contextlib.contextmanager
def _time_limit(function: Callable[..., Any]) -> Iterator[None]:
    """Stop the function when its time is up, and raise NoProtocol. In another thread than the main one: no limit."""

    def ring(*_: object) -> None:
        raise _TimeIsUp

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler, timer = signal.signal(signal.SIGALRM, ring), signal.setitimer(signal.ITIMER_REAL, SECONDS, 1)
    try:
        yield
    except _TimeIsUp as error:
        why = f"{_name(function)} was still running after {SECONDS:g} s{where(error, _file(function))}"
        raise NoProtocol(HUNG, why) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", "the function")


def _file(function: Callable[..., Any]) -> str:
    return function.__code__.co_filename if inspect.isfunction(function) else ""


def _line(generator: GeneratorType[Any, Any, Any]) -> str:
    """Return at which line a generator waits."""
    while inspect.isgenerator(generator.gi_yieldfrom):
        generator = generator.gi_yieldfrom
    if generator.gi_frame is None:
        return ""
    return at_line(generator.gi_code.co_filename, generator.gi_frame.f_lineno)


def _shown(value: object) -> str:
    return one_line(safely(repr, value), 80)


def _in_words(step: str | None) -> str:
    return {None: "ends", REFUSES: "refuses the batch"}.get(step, f"yields {step!r}")


# In processes that have only the table


def from_table(table: Any) -> BatchProtocol:
    """Return the protocol that does what a table says. Raises NoTable.

    The protocol raises NoTable, too: in a situation that is not in the table.
    """
    all_courses(table)
    return functools.partial(by_table, table)


def by_table(table: list[Node], batch: Batch, has_epoch: bool) -> Protocol:
    """Do what a table says. At module level, so that another process can load it by name."""
    situation, node = _entry(table, batch, has_epoch)
    while (step := node[0]) is not None:
        if step == REFUSES:
            raise MarkerMismatch("it is refused")
        node = node[1 + situation.place(step, (yield step))]


def _entry(table: list[Node], batch: Batch, has_epoch: bool) -> tuple[Situation, Node]:
    """Return a table's entry for a batch. The batch may be of any query."""
    for situation, node in zip(SITUATIONS, table, strict=True):
        if situation.has_epoch == has_epoch and replace(batch, query_id=situation.batch.query_id) == situation.batch:
            return situation, node
    raise NoTable(f"the table has no entry for {batch}")


def all_courses(table: object) -> list[tuple[Situation, Course]]:
    """Return each course that a batch can take; first that of batch 0 if no marker is there. Raises NoTable."""
    if not isinstance(table, list) or len(table) != len(SITUATIONS):
        raise NoTable("the run left no table of what the protocol does")
    return [(each, course) for each, node in zip(SITUATIONS, table, strict=True) for course in _courses(each, node)]


def described(table: list[Node]) -> list[str]:
    """Return the courses that there are, a line each."""
    lines = (", ".join(step or "end" for step in course) for _, course in all_courses(table))
    return list(dict.fromkeys(lines))


def _courses(situation: Situation, node: object) -> Iterator[Course]:
    match node:
        case [None | "refuses" as end]:
            yield (end,)
        case [str(step), *following] if step in STEPS and len(following) == len(situation.answers(step)):
            for each in following:
                for rest in _courses(situation, each):
                    yield (step, *rest)
        case _:
            raise NoTable(f"the table of what the protocol does has no step {_shown(node)}")
