"""A driver of a replay: it carries out the steps of its batches on the real Kafka, with a client of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from labs.pipeline.records import WINDOW_MS, result_value
from labs.schedules.replay.checkpoint import SmallCheckpoint, Taken
from labs.schedules.replay.program_client import Headers, ProgramClient
from labs.schedules.replay.stepwise import Ended, serve

# Kafka's ways to say that a younger producer has the name.
FENCED = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)


class Driver:
    """Runs `settings["program"]`, batch after batch, from `batch` on."""

    def __init__(self, settings: dict[str, Any]):
        self._settings = settings
        self._program: list[str] = settings["program"]
        self._checkpoint = SmallCheckpoint(settings["checkpoint"])
        self._batch, self._step, self._row = settings["batch"], 0, 0
        self._fresh, self._computed, self._has_epoch, self._attempt = True, False, False, 0
        self._kafka = ProgramClient(settings, transactional="commit" in self._program)

    @property
    def finished(self) -> bool:
        return self._batch >= self._settings["batches"]

    def upcoming(self) -> dict[str, Any]:
        """Say which step comes next."""
        step = self._program[self._step]
        if step == "fence" and self._settings["keeps_epoch"] and self._has_epoch:
            self._step += 1
            step = self._program[self._step]
        if step == "rows":
            return {"action": "row", "batch": self._batch, "row": self._begin + self._row}
        return {"action": step, "batch": self._batch}

    def take(self, step: dict[str, Any]) -> str:
        """Take the step, and return what came back. Raises Ended after the last answer of all."""
        actions: dict[str, Callable[[], str]] = {
            "plan": self._plan,
            "fence": self._fence,
            "read marker": self._read_marker,
            "row": self._send_row,
            "marker": self._send_marker,
            "commit": self._commit,
            "note": self._note,
        }
        try:
            return actions[step["action"]]()
        except Taken as taken:
            raise Ended(str(taken)) from None
        except KafkaException as error:
            kafka_error = error.args[0]
            raise Ended("fenced" if kafka_error.code() in FENCED else kafka_error.str()) from None

    # The steps

    def _plan(self) -> str:
        batch, planned = self._batch, self._checkpoint.planned
        if batch and not self._checkpoint.has_state(batch - 1):
            raise Ended("the state of the batch before is missing")
        again = self._fresh and batch < len(planned)
        if not again:
            rows = self._settings["rows"]
            self._checkpoint.plan(batch, rows, rows * self._settings["batches"])
        self._fresh = False
        self._attempt += 1
        self._go_on()
        return "as planned before" if again else ""

    def _fence(self) -> str:
        self._kafka.ask_for_epoch()
        self._has_epoch = True
        self._go_on()
        return "ok"

    def _read_marker(self) -> str:
        marker = self._kafka.last_marker()
        batch, end = self._batch, self._end
        done, its_end = marker or (-1, 0)
        if done == batch and (its_end == end or not self._settings["marker_says_plan"]):
            self._step = self._program.index("note")
            self._computed = self._settings["drains"]
        elif done == batch - 1:
            self._go_on()
        else:
            raise Ended(f"batch {done}" if marker else "none")
        return f"batch {done}" if marker else "none"

    def _send_row(self) -> str:
        record, last = self._begin + self._row, self._begin + self._row + 1 == self._end
        headers: Headers = [
            ("batch_id", str(self._batch)),
            ("attempt", f"{self._settings['client_id']} {self._attempt}"),
        ]
        if last or "commit" in self._program:  # the last may never be seen, and half a transaction is none
            headers.append(("batch_rows", str(self._end - self._begin)))
        self._kafka.send(self._settings["topic"], result_value(record * WINDOW_MS, f"record {record}", 1), headers)
        self._row += 1
        if last:
            self._row = 0
            self._computed = True
            self._go_on()
        return "ok"

    def _send_marker(self) -> str:
        self._kafka.send(self._settings["marker_topic"], json.dumps([self._batch, self._end]).encode(), [])
        self._go_on()
        return "ok"

    def _commit(self) -> str:
        self._kafka.commit()
        self._go_on()
        return "ok"

    def _note(self) -> str:
        self._checkpoint.note(self._batch, self._computed)
        self._go_on()
        return ""

    # What they need

    @property
    def _begin(self) -> int:
        return self._checkpoint.planned[self._batch - 1] if self._batch else 0

    @property
    def _end(self) -> int:
        return self._checkpoint.planned[self._batch]

    def _go_on(self) -> None:
        self._step += 1
        if self._step == len(self._program):
            self._batch, self._step, self._fresh, self._computed = self._batch + 1, 0, False, False


if __name__ == "__main__":
    serve(Driver)
