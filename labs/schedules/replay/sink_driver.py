"""A driver of a replay that is the real sink, in a thread of its own, held before each thing it asks of Kafka.

Where `PlayedDriver` runs a program of steps, here `ExactlyOnceKafkaSink` is called batch by batch, as Spark would call
it. Only its gates are the bench's: what it asks, in which order, and what it makes of the answers is its own.
"""

from __future__ import annotations

import queue
import threading
from typing import Any

from pyspark.sql import SparkSession

from exactly_once_kafka.errors import BatchFailed, SinkRefused
from exactly_once_kafka.producer import PendingProducer
from labs.equipment.eventually import eventually
from labs.pipeline.records import WINDOW_MS, result_value
from labs.schedules.replay.checkpoint import Taken
from labs.schedules.replay.driver import Silent, Step
from labs.schedules.replay.gated_sink import GatedSink

PATIENCE = 60.0  # seconds
ENDING = 10.0  # seconds that a driver may need to leave what it is at


class Abandoned(BaseException):
    """The replay is over: whoever still waits at a gate gives up."""


class SinkDriver:
    """Looks like a `PlayedDriver` to the player. `settings` are those that the player gives to any driver."""

    def __init__(self, name: str, settings: dict[str, Any], spark: SparkSession):
        self.name, self.alive, self.asleep = name, True, False
        self.taking: Step | None = None
        self._settings, self._spark = settings, spark
        # At which gate it stands, and whether that asks for an epoch and goes on without the answer; None at its end.
        self._steps: queue.Queue[tuple[Step | None, bool]] = queue.Queue()
        self._standing: tuple[Step | None, bool] | None = None
        self._answers: queue.Queue[str] = queue.Queue()
        self.ahead: list[PendingProducer] = []  # what comes of such questions
        self._waits_for: int | None = None  # which of them was begun last
        self._go, self.over, self._ended = threading.Semaphore(0), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    # The bench's side

    def peek(self) -> Step:
        """Return the step before which the driver stands. Raises Silent."""
        return self._gate()[0] or Step("end")

    def _gate(self) -> tuple[Step | None, bool]:
        self._standing = self._standing or self._from(self._steps, PATIENCE, "gate")
        return self._standing

    def begin(self) -> Step:
        """Open the gate at which the driver waits, and return the step that it takes. Raises Silent."""
        step, ahead = self._gate()
        if step is None:
            self.alive = False
            return Step("end")
        self._standing = None
        self._waits_for = len(self.ahead) if ahead else None
        self.taking = None if ahead else step
        self._go.release()
        return step

    def answer(self, timeout: float = PATIENCE) -> str:
        """Return what came back for the step that the driver has begun. Raises Silent."""
        if (n := self._waits_for) is not None:
            eventually(lambda: len(self.ahead) > n, timeout)
            self.ahead[n]._thread.join(timeout)
            return "ok"
        said = self._from(self._answers, timeout, "answer")
        self.taking = None
        self.alive = not self._ended.is_set()
        return said

    def _from(self, waiting: queue.Queue[Any], timeout: float, what: str) -> Any:
        try:
            return waiting.get(timeout=timeout)
        except queue.Empty:
            raise Silent(f"{self.name} came to no {what} within {timeout:g} s") from None

    def sleep(self) -> None:
        """It gets no word: between two words it does nothing."""
        self.asleep = True

    def wake(self) -> None:
        self.asleep = False

    def kill(self) -> None:
        """It gets no word any more, and its requests under way are answered to nobody."""
        self.alive, self.taking = False, None

    def close(self) -> None:
        self.kill()
        self.over.set()
        self._go.release()
        self._thread.join(ENDING)  # a thread that is in a Kafka client when Python ends may break what that frees

    # The driver's side

    def gate(self, action: str, batch: int, row: int | None = None, ahead: bool = False) -> None:
        """Say which step comes next, and wait for the word to take it."""
        self._steps.put((Step(action, batch, row), ahead))
        self._go.acquire()
        if self.over.is_set():
            raise Abandoned

    def tell(self, answer: str) -> None:
        """Say what came back for the last step."""
        self._answers.put(answer)

    def _run(self) -> None:
        sink = GatedSink(self, self._settings)
        try:
            self._run_batches(sink)
            self._steps.put((None, False))
            return
        except SinkRefused:
            answer = str(sink.said)  # it is what it read that it refuses
        except (Taken, BatchFailed) as error:
            answer = "fenced" if "fenced" in str(error) else str(error)
        except Abandoned:
            return
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        self._ended.set()
        self._answers.put(answer)

    def _run_batches(self, sink: GatedSink) -> None:
        checkpoint, settings, fresh = sink.checkpoint, self._settings, True
        for batch in range(settings["batch"], settings["batches"]):
            self.gate("plan", batch)
            again = fresh and batch < len(checkpoint.planned)
            fresh = False
            if not again:
                checkpoint.plan(batch, settings["rows"], settings["rows"] * settings["batches"])
            self.tell("as planned before" if again else "")
            begin, end = checkpoint.planned[batch - 1] if batch else 0, checkpoint.planned[batch]
            sink.first = begin
            values = [(result_value(r * WINDOW_MS, f"record {r}", 1).decode(),) for r in range(begin, end)]
            sink(self._spark.createDataFrame(values, "value string"), batch)
            sink.tell()
            self.gate("note", batch)
            checkpoint.note(batch, computed=True)
            self.tell("")
