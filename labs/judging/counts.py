"""The workload `count`: requests per IP in windows of five seconds, by the rules in `labs.pipeline.records`.

There is one source partition, so that the job needs no rule for the event time of several. Limitations: as those of the
auditor, and the records have no headers, so neither torn batches nor aborted records can be judged.
"""

from __future__ import annotations

from collections.abc import Iterable

from labs.evidence.auditor.audit import audit
from labs.evidence.auditor.expected import count_by_window
from labs.evidence.auditor.observed import Key, Result
from labs.evidence.auditor.observed import Reading as Results
from labs.evidence.auditor.verdict import Audit
from labs.judging.workload import Input, Output, Reading, with_phantoms
from labs.pipeline.log.generate import Traffic
from labs.pipeline.records import (
    CLOSING_DELAY_MS,
    CLOSING_IP,
    LATENESS_MS,
    WINDOW_MS,
    parse_result_value,
    source_value,
)

ABORTED_IP = "10.0.0.1"  # no record of the log has it
CLIENTS, RATE = 100, 200.0  # different IPs, and requests per second of event time


class Count:
    """`records` requests. A name is (window start in epoch millis, IP)."""

    name = "count"
    partitions = 1

    def __init__(self, records: int, partitions: int, seed: int):
        if partitions != 1:
            raise ValueError(f"the workload count has 1 partition, not {partitions}: windows are closed by event time")
        self.log = log = list(Traffic(requests=records, seed=seed, rate=RATE, clients=CLIENTS, bursts=False))
        self._expected = count_by_window(log)
        self.inputs = [Input(0, ip.encode(), source_value(time_ms, ip)) for time_ms, ip in log]
        self.due: dict[Key, int] = {}
        waiting, latest = sorted(self._expected, reverse=True), 0
        for index, (time_ms, _) in enumerate(log):
            latest = max(latest, time_ms)
            while waiting and waiting[-1][0] + WINDOW_MS + LATENESS_MS <= latest:
                self.due[waiting.pop()] = index
        self.due |= dict.fromkeys(waiting, len(log))
        self.closing = [Input(0, CLOSING_IP.encode(), source_value(latest + CLOSING_DELAY_MS, CLOSING_IP))]
        end = max((start for start, _ in self._expected), default=0)
        self.aborted = [Input(0, ABORTED_IP.encode(), source_value(log[0][0], ABORTED_IP))]
        self.last = {key for key in self._expected if key[0] == end}

    def result_of(self, output: Output) -> Key | None:
        """Return window start and IP of a result; None if it is not a result of the count."""
        result = _result(output)
        return (result.window_start, result.ip) if result else None

    def audit(self, reading: Reading) -> Audit:
        """Let the lab's auditor judge what was read."""
        # Records that the job wrote after the last look are no difference between readers, so they count as watched.
        later = None if reading.watched is None else _results({*reading.watched, *reading.outputs})
        results = Results(_results(reading.outputs), reading.decided)
        found = audit(self._expected, results, second_reader=later, reader_error=reading.error)
        return with_phantoms(found, [output for output in reading.outputs if not _result(output)])


def _results(outputs: Iterable[Output]) -> list[Result]:
    return [result for result in map(_result, outputs) if result]


def _result(output: Output) -> Result | None:
    try:
        return Result(*parse_result_value(output.value), partition=output.partition, offset=output.offset)
    except ValueError:
        return None
