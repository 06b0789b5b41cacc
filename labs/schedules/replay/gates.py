"""The program of a replay's driver: it waits at a gate before each step, until the player tells it to take the step.

So a player can hold it between any two steps, stop it, wake it and kill it. The module `driver` is the player's end,
and describes what the two say to each other. The program says what came back for a step only when it has reached the
next gate or has ended. So the player knows with each answer whether the program goes on.
"""

from __future__ import annotations

import contextlib
import functools
import json
import socket
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

from confluent_kafka import KafkaException

from exactly_once_kafka.errors import FENCED, SinkRefused
from exactly_once_kafka.plan import spelled
from exactly_once_kafka.protocol import Batch, Marker, MarkerMismatch, Step
from labs.schedules.model.drivers_and_network import REQUESTS
from labs.schedules.model.state import BatchProtocol


class Ended(Exception):
    """The program goes no further. The message is the answer to its last step, which says why."""


class Abandoned(BaseException):
    """The replay is over, while the program waits at a gate."""


class Gates:
    """The program's end of the sockets. `ahead` is a thread that asks for the next epoch while the program goes on."""

    def __init__(self, ours: socket.socket):
        self._socket, self._words = ours, ours.makefile("r", encoding="utf-8")
        self.answer: str | None = None  # to the last step, as long as the player has not heard it
        self.ahead: Thread | None = None

    def gate(self, action: str, batch: int | None = None, row: int | None = None, **more: bool) -> None:
        """Say which step comes next, and wait for the word to take it. Raises Abandoned.

        `ahead`: the program does not wait for the answer. `ended`: there is no next step.
        """
        if self.answer is not None:
            self.say(answer=self.answer)
            self.answer = None
        step = {"action": action, "batch": batch, "row": row, **more}
        for word in self._words:
            if word == "peek\n":
                waits = action not in ("plan", "note", "end") and self.ahead is not None and self.ahead.is_alive()
                self.say(**step, waits=waits)
            elif word == "wait\n":
                if self.ahead:
                    self.ahead.join()
                self.say(answer="ok")
            else:
                return self.say(**step)
        raise Abandoned

    def say(self, **what: Any) -> None:
        try:
            self._socket.sendall(f"{json.dumps(what)}\n".encode())
        except OSError:
            raise Abandoned from None

    def close(self) -> None:
        self._words.close()
        self._socket.close()


Program = Callable[[dict[str, Any], Gates], object]


def serve(program: Program, settings: dict[str, Any], ours: socket.socket) -> None:
    """Run a program, and say how it ends."""
    with contextlib.closing(Gates(ours)) as gates, contextlib.suppress(Abandoned):
        try:
            program(settings, gates)
            gates.gate("end", ended=True)
        except Ended as ended:
            gates.say(answer=str(ended), ended=True)
        except (MarkerMismatch, SinkRefused) as refused:  # the answer is the marker that the program has just read
            gates.say(answer=gates.answer or str(refused), ended=True)
        except KafkaException as error:
            kafka_error = error.args[0]
            gates.say(answer="fenced" if kafka_error.code() in FENCED else kafka_error.str(), ended=True)


# What a driver does for each batch

MORE = "the source has grown"


class SmallCheckpoint:
    """A checkpoint in a directory, with the files of a real one: `offsets/N`, `state/N` and `commits/N`.

    All drivers of one query share it. Each file is made once: a second driver that wants to make it ends.
    """

    def __init__(self, directory: str | Path):
        self.directory = Path(directory)
        for kind in ("offsets", "state", "commits"):
            (self.directory / kind).mkdir(parents=True, exist_ok=True)

    @property
    def planned(self) -> tuple[int, ...]:
        """Where each planned batch ends, as the number of records up to there."""
        files = sorted((self.directory / "offsets").iterdir(), key=lambda file: int(file.name))
        return tuple(int(file.read_text()) for file in files)

    @property
    def noted(self) -> int:
        """The last batch that is noted as done, or -1."""
        return max((int(file.name) for file in (self.directory / "commits").iterdir()), default=-1)

    def records(self, batch: int) -> range:
        """Return the records of a planned batch."""
        planned = self.planned
        return range(planned[batch - 1] if batch else 0, planned[batch])

    def has_state(self, batch: int) -> bool:
        """Tell whether the batch's plan was executed. If not, the next batch has no state to start from."""
        return (self.directory / "state" / str(batch)).exists()

    def plan(self, batch: int, records: int, available: int) -> None:
        """Plan a batch of so many records, and of one more if the source has grown. Raises Ended."""
        begin, more = self.planned[batch - 1] if batch else 0, self.directory / MORE
        self._make("offsets", batch, str(min(begin + records + more.exists(), available)), "another driver has")
        more.unlink(missing_ok=True)

    def note(self, batch: int, computed: bool) -> None:
        """Note that a batch is done, with the state that it leaves if its plan was executed. Raises Ended."""
        self._make("commits", batch, "", "it is noted")
        if computed:
            (self.directory / "state" / str(batch)).touch()

    def roll_back(self) -> None:
        """Delete the files of the last planned batch, as if an older copy was restored; the source has grown since."""
        last = len(self.planned) - 1
        for kind in ("offsets", "state", "commits"):
            (self.directory / kind / str(last)).unlink(missing_ok=True)
        (self.directory / MORE).touch()

    def _make(self, kind: str, batch: int, text: str, taken: str) -> None:
        try:
            with (self.directory / kind / str(batch)).open("x") as file:
                file.write(text)
        except FileExistsError:
            raise Ended(taken) from None


class GatedTransport:
    """Takes the steps of one batch through `inner`, a sink's transport, and has a gate before each of them.

    `thread_of` returns the thread that asks for the next epoch, once that step is taken.
    """

    def __init__(
        self, inner: Any, gates: Gates, checkpoint: SmallCheckpoint, batch: int, thread_of: Callable[[], Thread | None]
    ):
        self._inner, self._gates, self._checkpoint, self._batch = inner, gates, checkpoint, batch
        self._thread_of, self._computed, self.noted = thread_of, False, False

    @property
    def has_epoch(self) -> bool:
        return self._inner.has_epoch

    def take(self, step: Step) -> Any:
        if step == "note":  # a wrong protocol has its batch noted before it ends
            self.note()
            return None
        self._computed = self._computed or step in ("rows", "drain")
        if step not in REQUESTS:  # it asks nothing of Kafka
            return self._inner.take(step)
        ahead, row = step == "next epoch", self._checkpoint.records(self._batch).start if step == "rows" else None
        self._gates.gate(REQUESTS[step], self._batch + ahead, row, ahead=ahead)
        answer = self._inner.take(step)
        if ahead:
            self._gates.ahead = self._thread_of()
        else:
            self._gates.answer = in_words(answer) if REQUESTS[step] == "read marker" else "ok"
        return answer

    def note(self) -> None:
        """Note the batch as done, as Spark does after it."""
        self._gates.gate("note", self._batch)
        self._checkpoint.note(self._batch, self._computed)
        self._gates.answer, self.noted = "", True

    def give_up(self, seconds: float) -> None:
        self._inner.give_up(seconds)


def in_words(marker: Marker | None) -> str:
    return f"batch {marker.batch_id}" if marker else "none"


def planned_batches(settings: dict[str, Any], gates: Gates, checkpoint: SmallCheckpoint) -> Iterator[Batch]:
    """Yield the batches from `settings["batch"]` on, each once it is planned, as Spark does before it."""
    fresh = True
    for number in range(settings["batch"], settings["batches"]):
        gates.gate("plan", number)
        if number and not checkpoint.has_state(number - 1):
            raise Ended("the state of the batch before is missing")
        again = fresh and number < len(checkpoint.planned)
        if not again:
            checkpoint.plan(number, settings["rows"], settings["rows"] * settings["batches"])
        gates.answer, fresh = "as planned before" if again else "", False
        records = checkpoint.records(number)
        yield Batch("a query", number, plan_up_to(records.stop), plan_up_to(records.start) if number else None)


def plan_up_to(end: int) -> str:
    return spelled({"end": end})


def name_of(protocol: BatchProtocol) -> list[Any]:
    """Return what tells another process which protocol that is: its module, its name, and arguments that are given.

    Raises RuntimeError for a protocol that only this process has.
    """
    function, given = (protocol.func, protocol.args) if isinstance(protocol, functools.partial) else (protocol, ())
    module, name = function.__module__, function.__qualname__
    if module == "__main__" or "<locals>" in name:
        raise RuntimeError(f"the protocol {name} is not in a module, where a driver's process could find it")
    return [module, name, *given]


def protocol_named(name: list[Any]) -> BatchProtocol:
    """Return the protocol with this `name_of`."""
    module, function, *given = name
    protocol: BatchProtocol = getattr(import_module(module), function)
    return functools.partial(protocol, *given) if given else protocol
